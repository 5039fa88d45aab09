//! Typed values: how the text of a key becomes a Rust value, and what is allowed.

use std::time::Duration;

/// Unit of a bare number, and with it the suffixes that are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A plain number or a text.
    None,
    /// Milliseconds; suffixes `ns us ms s m h d`.
    Millis,
    /// Seconds; same suffixes.
    Seconds,
    /// Minutes; same suffixes.
    Minutes,
    /// Hours; same suffixes.
    Hours,
    /// Bytes; suffixes `k m g t p e`, powers of 1024, upper or lower case.
    Bytes,
    /// Bytes per second; same suffixes as bytes.
    BytesPerSecond,
}

impl Unit {
    /// Short name, as documentation and `--print-config` show it. Empty for [`Unit::None`].
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Millis => "ms",
            Self::Seconds => "s",
            Self::Minutes => "min",
            Self::Hours => "h",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes/s",
        }
    }

    fn nanos(self) -> u64 {
        match self {
            Self::Minutes => 60_000_000_000,
            Self::Hours => 3_600_000_000_000,
            Self::Seconds => 1_000_000_000,
            Self::None | Self::Millis | Self::Bytes | Self::BytesPerSecond => 1_000_000,
        }
    }

    fn is_bytes(self) -> bool {
        matches!(self, Self::Bytes | Self::BytesPerSecond)
    }
}

/// A type that a key can have.
///
/// `parse` gets text whose variables are replaced and whose ends are trimmed. Its error is the end
/// of the sentence "must be ...".
pub trait Value: Clone + Send + Sync + 'static {
    /// Name of the type in documentation.
    const KIND: &'static str;
    /// Whether empty text is a value of its own; if not, it stands for the default.
    const EMPTY_IS_VALUE: bool = false;
    /// Reads a value.
    ///
    /// # Errors
    /// What is allowed, in words.
    fn parse(text: &str, unit: Unit) -> Result<Self, String>;
    /// The number behind the value, for bounds; milliseconds for durations.
    fn magnitude(&self) -> Option<i128> {
        None
    }
}

impl Value for bool {
    const KIND: &'static str = "boolean";
    fn parse(text: &str, _: Unit) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err("true or false".into()),
        }
    }
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Value for $type {
            const KIND: &'static str = "number";
            fn parse(text: &str, unit: Unit) -> Result<Self, String> {
                let number = match unit.is_bytes() {
                    true => byte_count(text)?,
                    false => integer(text).ok_or("a whole number")?,
                };
                Self::try_from(number)
                    .map_err(|_| format!("between {} and {}", Self::MIN, Self::MAX))
            }
            fn magnitude(&self) -> Option<i128> {
                Some(i128::from(*self))
            }
        }
    )*};
}
integers!(i32, u32, u64, i64);

impl Value for f64 {
    const KIND: &'static str = "fraction";
    fn parse(text: &str, _: Unit) -> Result<Self, String> {
        // Java accepts a type suffix, and Hadoop's own defaults use it: 0.75f.
        let digits = text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text);
        digits
            .parse()
            .ok()
            .filter(|n: &f64| n.is_finite())
            .ok_or_else(|| "a number such as 0.75".into())
    }
}

impl Value for Duration {
    const KIND: &'static str = "time";
    fn parse(text: &str, unit: Unit) -> Result<Self, String> {
        signed_duration(text, unit)?.ok_or_else(|| "a time that is not negative".into())
    }
    fn magnitude(&self) -> Option<i128> {
        i128::try_from(self.as_millis()).ok()
    }
}

/// `None` when empty or negative: both mean "not done" where Hadoop has such a key.
impl Value for Option<Duration> {
    const KIND: &'static str = "time, or negative for never";
    const EMPTY_IS_VALUE: bool = true;
    fn parse(text: &str, unit: Unit) -> Result<Self, String> {
        if text.is_empty() {
            Ok(None)
        } else {
            signed_duration(text, unit)
        }
    }
}

impl Value for Vec<Duration> {
    const KIND: &'static str = "list of times";
    fn parse(text: &str, unit: Unit) -> Result<Self, String> {
        items(text)
            .map(|item| Duration::parse(item, unit))
            .collect()
    }
}

impl Value for String {
    const KIND: &'static str = "text";
    const EMPTY_IS_VALUE: bool = true;
    fn parse(text: &str, _: Unit) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

/// `None` when empty.
impl Value for Option<String> {
    const KIND: &'static str = "text";
    const EMPTY_IS_VALUE: bool = true;
    fn parse(text: &str, _: Unit) -> Result<Self, String> {
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }
}

impl Value for Vec<String> {
    const KIND: &'static str = "list";
    const EMPTY_IS_VALUE: bool = true;
    fn parse(text: &str, _: Unit) -> Result<Self, String> {
        Ok(items(text).map(str::to_owned).collect())
    }
}

/// Permission bits, written in octal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode(pub u32);

impl Value for Mode {
    const KIND: &'static str = "permissions, octal";
    fn parse(text: &str, _: Unit) -> Result<Self, String> {
        u32::from_str_radix(text, 8)
            .ok()
            .filter(|m| *m <= 0o1777)
            .map(Self)
            .ok_or_else(|| "octal permissions such as 700".into())
    }
}

/// Comma-separated items, trimmed, empty ones left out.
pub(super) fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = text
        .strip_prefix('-')
        .map_or((false, text), |rest| (true, rest));
    let number = match digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"))
    {
        Some(hex) => i128::from(u64::from_str_radix(hex, 16).ok()?),
        None => i128::from(digits.parse::<u64>().ok()?),
    };
    Some(if negative { -number } else { number })
}

/// A number with an optional binary suffix.
fn byte_count(text: &str) -> Result<i128, String> {
    let allowed = || "a number of bytes, with k, m, g, t, p or e for powers of 1024".to_owned();
    let shift = match text.bytes().last().map(|b| b.to_ascii_lowercase()) {
        Some(b'k') => 10,
        Some(b'm') => 20,
        Some(b'g') => 30,
        Some(b't') => 40,
        Some(b'p') => 50,
        // A hexadecimal number may end in e too.
        Some(b'e') if !text.starts_with("0x") => 60,
        _ => 0,
    };
    let digits = if shift == 0 {
        text
    } else {
        &text[..text.len() - 1]
    };
    let number = integer(digits)
        .ok_or_else(allowed)?
        .checked_mul(1_i128 << shift)
        .ok_or_else(allowed)?;
    i64::try_from(number).map(i128::from).map_err(|_| allowed())
}

/// `None` for a negative time.
fn signed_duration(text: &str, unit: Unit) -> Result<Option<Duration>, String> {
    let allowed = || {
        let unit = if unit == Unit::None {
            "ms"
        } else {
            unit.name()
        };
        format!("a whole number of {unit}, or one with a suffix ns, us, ms, s, m, h or d")
    };
    let digits = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let nanos = match suffix.to_ascii_lowercase().as_str() {
        "" => unit.nanos(),
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return Err(allowed()),
    };
    let number: i64 = number.parse().map_err(|_| allowed())?;
    let Ok(count) = u64::try_from(number) else {
        return Ok(None);
    };
    // Java counts in 64-bit units and so does everyone's arithmetic: 100 years is the end.
    let whole = u128::from(count) * u128::from(nanos);
    if whole > 100 * 366 * 86_400 * 1_000_000_000_u128 {
        return Err("at most 100 years".into());
    }
    let seconds = u64::try_from(whole / 1_000_000_000).map_err(|_| allowed())?;
    let rest = u32::try_from(whole % 1_000_000_000).map_err(|_| allowed())?;
    Ok(Some(Duration::new(seconds, rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_every_suffix() {
        let ms = |text| Duration::parse(text, Unit::Millis).map(|d| d.as_millis());
        assert_eq!(ms("10"), Ok(10));
        assert_eq!(ms("10s"), Ok(10_000));
        assert_eq!(ms("10S"), Ok(10_000));
        assert_eq!(ms("2m"), Ok(120_000));
        assert_eq!(ms("1d"), Ok(86_400_000));
        assert_eq!(ms("1h"), Ok(3_600_000));
        assert_eq!(
            Duration::parse("7us", Unit::Seconds),
            Ok(Duration::from_micros(7))
        );
        assert_eq!(
            Duration::parse("3", Unit::Hours),
            Ok(Duration::from_secs(10_800))
        );
        for bad in [
            "1.5s",
            "10 s",
            "3min",
            "-1",
            "",
            "s",
            "99999999999d",
            "9223372036854775808",
        ] {
            assert!(ms(bad).is_err(), "{bad}");
        }
        assert_eq!(Option::<Duration>::parse("-1", Unit::Seconds), Ok(None));
    }

    #[test]
    fn bytes_with_every_suffix() {
        let bytes = |text| u64::parse(text, Unit::Bytes);
        assert_eq!(bytes("7"), Ok(7));
        assert_eq!(bytes("10M"), Ok(10 << 20));
        assert_eq!(bytes("4k"), Ok(4096));
        assert_eq!(bytes("5e"), Ok(5 << 60));
        for bad in ["10MB", "1.5g", "1 k", "", "-1", "8e", "k"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_and_bounds_of_their_types() {
        assert_eq!(i32::parse("0x10", Unit::None), Ok(16));
        assert_eq!(i32::parse("-5", Unit::None), Ok(-5));
        assert!(u32::parse("-5", Unit::None).is_err());
        assert!(u32::parse("10m", Unit::None).is_err());
        assert_eq!(f64::parse("0.75f", Unit::None), Ok(0.75));
        assert!(bool::parse("yes", Unit::None).is_err());
        assert_eq!(Mode::parse("755", Unit::None), Ok(Mode(0o755)));
        assert!(Mode::parse("888", Unit::None).is_err());
    }
}
