//! What an engine did otherwise, as one sentence for its author.

use std::fmt;

use hayloft_io::IoError;

/// What a case comes to.
pub(crate) type Verdict<T = ()> = Result<T, Breach>;

/// Bytes shown on each side where two runs of bytes differ.
const SHOWN: usize = 8;

/// A call of an engine that did not do what the contract demands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    call: String,
    expected: String,
    came: String,
}

impl Breach {
    /// `call` names the function of `hayloft_engine.h` with what it was given; `expected` and
    /// `came` complete "expected ..." and "came ...".
    pub(crate) fn new(
        call: impl Into<String>,
        expected: impl Into<String>,
        came: impl Into<String>,
    ) -> Self {
        Self {
            call: call.into(),
            expected: expected.into(),
            came: came.into(),
        }
    }

    /// As [`Breach::new`], where an error came.
    pub(crate) fn failed(
        call: impl Into<String>,
        expected: impl Into<String>,
        error: &IoError,
    ) -> Self {
        Self::new(call, expected, format!("the error \"{error}\""))
    }

    /// The same, asked for again and again.
    pub(crate) fn after(mut self, time: &str) -> Self {
        self.expected += &format!(" within {time}");
        self
    }

    /// The first place where `came` is not `expected`; `offset` is where in the file they begin.
    /// `None`: there is none.
    pub(crate) fn of_bytes(
        call: impl Into<String>,
        offset: u64,
        expected: &[u8],
        came: &[u8],
    ) -> Option<Self> {
        if expected.len() != came.len() {
            let (wanted, got) = (bytes(expected.len()), bytes(came.len()));
            return Some(Self::new(call, wanted, got));
        }
        let pairs = || expected.iter().zip(came);
        let first = pairs().position(|(one, other)| one != other)?;
        let wrong = pairs().filter(|(one, other)| one != other).count();
        let from = offset.saturating_add(u64::try_from(first).unwrap_or(u64::MAX));
        Some(Self::new(
            call,
            format!(
                "{} from byte {from} of the file on",
                hex(&expected[first..])
            ),
            format!(
                "{} ({wrong} of {} bytes differ)",
                hex(&came[first..]),
                expected.len()
            ),
        ))
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            call,
            expected,
            came,
        } = self;
        write!(f, "{call}: expected {expected}, came {came}")
    }
}

/// A count of bytes, in words.
pub(crate) fn bytes(count: usize) -> String {
    match count {
        1 => "1 byte".to_owned(),
        count => format!("{count} bytes"),
    }
}

/// The first bytes, as an editor of binary files shows them.
fn hex(bytes: &[u8]) -> String {
    let shown = bytes.iter().take(SHOWN).map(|b| format!("{b:02x}"));
    let shown = shown.collect::<Vec<_>>().join(" ");
    match bytes.len() > SHOWN {
        true => format!("the bytes {shown} ..."),
        false => format!("the bytes {shown}"),
    }
}
