//! Path and parameters of a request, and what is wrong with them in Apache's words.

use axum::http::Uri;

use super::super::percent::{self, BadEscape, Plus};
use super::ROOT;
use super::refusal::Refusal;

/// Flags of `createflag`: Java's names, and the bit that a NameNode knows.
const FLAGS: [(&str, u32); 9] = [
    ("CREATE", 1),
    ("OVERWRITE", 2),
    ("APPEND", 4),
    ("SYNC_BLOCK", 0),
    ("LAZY_PERSIST", 16),
    ("NEW_BLOCK", 32),
    ("NO_LOCAL_WRITE", 0),
    ("SHOULD_REPLICATE", 128),
    ("IGNORE_CLIENT_LOCALITY", 0),
];
/// Bits of a permission with the sticky one.
const PERMISSION_MAX: i16 = 0o1777;

/// A request taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parameters {
    /// Of the file.
    pub(super) path: String,
    pairs: Vec<(String, String)>,
}

/// How `createflag` is understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CreateFlags {
    /// As a NameNode knows them.
    pub(super) bits: u32,
    pub(super) sync_blocks: bool,
    pub(super) no_local_write: bool,
    pub(super) ignore_locality: bool,
}

impl Parameters {
    /// Of a request below [`ROOT`].
    pub(super) fn of(uri: &Uri) -> Result<Self, Refusal> {
        let all = uri.to_string();
        let path = uri.path().strip_prefix(ROOT).unwrap_or_default();
        let path = decoded(path, Plus::IsPlus, ROOT.len(), &all)?;
        let query = uri.query().unwrap_or_default();
        let mut pairs = Vec::new();
        // Behind the question mark.
        let mut at = uri.path().len() + 1;
        for pair in query.split(['&', ';']) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !pair.is_empty() {
                let value_at = at + name.len() + 1;
                let name = decoded(name, Plus::IsSpace, at, &all)?;
                pairs.push((name, decoded(value, Plus::IsSpace, value_at, &all)?));
            }
            at += pair.len() + 1;
        }
        Ok(Self { path, pairs })
    }

    /// The first value of that name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.pairs.iter().find(|(of, _)| of == name);
        found.map(|(_, value)| value.as_str())
    }

    /// A number of 64 bits that is not below `min`.
    pub(super) fn long(&self, name: &str, min: i64) -> Result<Option<u64>, Refusal> {
        let parse = |text: &str| text.parse::<i64>().ok();
        let number = self.number(name, "radix-10 long integer", parse)?;
        let within = number.map(|value| at_least(name, value, min)).transpose()?;
        Ok(within.map(i64::cast_unsigned))
    }

    /// Likewise of 32 bits.
    pub(super) fn int(&self, name: &str, min: i32) -> Result<Option<u32>, Refusal> {
        let parse = |text: &str| text.parse::<i32>().ok();
        let number = self.number(name, "radix-10 integer", parse)?;
        let within = number.map(|value| at_least(name, value, min)).transpose()?;
        Ok(within.map(i32::cast_unsigned))
    }

    /// Likewise of 16 bits.
    pub(super) fn short(&self, name: &str, min: i16) -> Result<Option<u16>, Refusal> {
        let parse = |text: &str| text.parse::<i16>().ok();
        let number = self.number(name, "radix-10 short integer", parse)?;
        let within = number.map(|value| at_least(name, value, min)).transpose()?;
        Ok(within.map(i16::cast_unsigned))
    }

    /// Bits of a permission, in octal digits.
    pub(super) fn permission(&self, name: &str) -> Result<Option<u32>, Refusal> {
        let parse = |text: &str| i16::from_str_radix(text, 8).ok();
        let Some(bits) = self.number(name, "radix-8 short integer", parse)? else {
            return Ok(None);
        };
        if bits < 0 {
            let bits = i32::from(bits);
            let text = format!("Invalid parameter range: {name} = -{:o} < 0", bits.abs());
            return Err(Refusal::argument(text));
        }
        if bits > PERMISSION_MAX {
            let text = format!("Invalid parameter range: {name} = {bits:o} > {PERMISSION_MAX:o}");
            return Err(Refusal::argument(text));
        }
        Ok(Some(u32::from(bits.cast_unsigned())))
    }

    fn number<T>(
        &self,
        name: &str,
        kind: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        let refusal = || Refusal::argument(format!("Failed to parse \"{text}\" as a {kind}."));
        parse(text).map(Some).ok_or_else(refusal)
    }

    /// `true` or `false`.
    pub(super) fn boolean(&self, name: &str, default: bool) -> Result<bool, Refusal> {
        match self.get(name) {
            None => Ok(default),
            Some(text) if text.eq_ignore_ascii_case("true") => Ok(true),
            Some(text) if text.eq_ignore_ascii_case("false") => Ok(false),
            Some(text) => {
                let text = format!("Failed to parse \"{text}\" to Boolean.");
                Err(Refusal::argument(text))
            }
        }
    }

    /// `createflag`, `None` when there is none in it.
    pub(super) fn create_flags(&self) -> Result<Option<CreateFlags>, Refusal> {
        // Java's client encodes them twice.
        let text = self.get("createflag").unwrap_or_default();
        let text = decoded(text, Plus::IsPlus, 0, text)?;
        if text.is_empty() {
            return Ok(None);
        }
        let mut flags = CreateFlags::default();
        for name in text.split(',') {
            let name = name.trim().to_ascii_uppercase();
            let Some((_, bit)) = FLAGS.iter().find(|(known, _)| *known == name) else {
                let text = format!("No enum constant org.apache.hadoop.fs.CreateFlag.{name}");
                return Err(Refusal::argument(text));
            };
            flags.bits |= bit;
            match &*name {
                "SYNC_BLOCK" => flags.sync_blocks = true,
                "NO_LOCAL_WRITE" => flags.no_local_write = true,
                "IGNORE_CLIENT_LOCALITY" => flags.ignore_locality = true,
                _ => {}
            }
        }
        Ok(Some(flags))
    }
}

fn at_least<T: PartialOrd + std::fmt::Display>(name: &str, value: T, min: T) -> Result<T, Refusal> {
    if value < min {
        let text = format!("Invalid parameter range: {name} = {value} < {min}");
        return Err(Refusal::argument(text));
    }
    Ok(value)
}

/// Percent-encoded text, which begins at `begins` in `all`.
fn decoded(text: &str, plus: Plus, begins: usize, all: &str) -> Result<String, Refusal> {
    let bytes = percent::decoded(text, plus).map_err(|bad| {
        Refusal::argument(match bad {
            BadEscape::Cut { at } => {
                let index = begins + at;
                format!("unterminated escape sequence at index {index} of: {all}")
            }
            BadEscape::Digits { at, digits } => {
                let ([high, low], index) = (digits, begins + at + 1);
                format!("invalid hex byte '{high}{low}' at index {index} of '{all}'")
            }
        })
    })?;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// A path as it stands in a URI.
pub(super) fn encoded(path: &str) -> String {
    percent::encoded(path, b"_-!.~'()*,;:$&+=/@")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(query: &str) -> Parameters {
        let uri = format!("/webhdfs/v1/a?{query}").parse().expect("a URI");
        Parameters::of(&uri).expect("well")
    }

    fn refused<T: std::fmt::Debug>(outcome: Result<T, Refusal>, words: &str) {
        assert_eq!(outcome.expect_err("refused"), Refusal::argument(words));
    }

    #[test]
    fn paths_and_parameters_are_decoded() {
        let uri = "/webhdfs/v1/x/y%20z+q?op=OPEN;a=1+2&b=%C3%A4&a=3&c";
        let parameters = Parameters::of(&uri.parse().expect("a URI")).expect("well");
        assert_eq!(parameters.path, "/x/y z+q");
        let values = ["op", "a", "b", "c", "d"].map(|name| parameters.get(name));
        assert_eq!(
            values,
            [Some("OPEN"), Some("1 2"), Some("ä"), Some(""), None]
        );
        for bad in ["/webhdfs/v1/%", "/webhdfs/v1/a?b=%4", "/webhdfs/v1/a?%zz"] {
            Parameters::of(&bad.parse().expect("a URI")).expect_err(bad);
        }
        let root = Parameters::of(&"/webhdfs/v1?op=OPEN".parse().expect("a URI"));
        assert_eq!(root.expect("well").path, "");
    }

    #[test]
    fn numbers_meet_apache_s_limits() {
        assert_eq!(of("").long("offset", 0), Ok(None));
        assert_eq!(of("offset=7").long("offset", 0), Ok(Some(7)));
        let range = "Invalid parameter range: offset = -1 < 0";
        refused(of("offset=-1").long("offset", 0), range);
        let parse = "Failed to parse \"\" as a radix-10 long integer.";
        refused(of("offset=").long("offset", 0), parse);
        let parse = "Failed to parse \"99999\" as a radix-10 short integer.";
        refused(of("replication=99999").short("replication", 1), parse);
        let range = "Invalid parameter range: buffersize = 0 < 1";
        refused(of("buffersize=0").int("buffersize", 1), range);
        assert_eq!(
            of("permission=1777").permission("permission"),
            Ok(Some(0o1777))
        );
        let parse = "Failed to parse \"9\" as a radix-8 short integer.";
        refused(of("permission=9").permission("permission"), parse);
        let range = "Invalid parameter range: permission = 2777 > 1777";
        refused(of("permission=2777").permission("permission"), range);
    }

    #[test]
    fn flags_are_those_of_java() {
        let text = "createflag=create,%20overwrite%252CSYNC_BLOCK,LAZY_PERSIST";
        let flags = of(text).create_flags().expect("known").expect("some");
        assert_eq!((flags.bits, flags.sync_blocks), (19, true));
        assert_eq!(of("createflag=").create_flags(), Ok(None));
        let unknown = "No enum constant org.apache.hadoop.fs.CreateFlag.NOPE";
        refused(of("createflag=NOPE").create_flags(), unknown);
        assert_eq!(of("o=TRUE").boolean("o", false), Ok(true));
        let parse = "Failed to parse \"xx\" to Boolean.";
        refused(of("o=xx").boolean("o", false), parse);
    }

    #[test]
    fn a_path_is_encoded_as_java_does() {
        assert_eq!(encoded("/x/y z+q"), "/x/y%20z+q");
        assert_eq!(encoded("/100%?#[ä"), "/100%25%3F%23%5B%C3%A4");
    }

    proptest! {
        /// A caller may send any query before it is known who it is.
        #[test]
        fn any_query_is_decoded_or_refused(query in "[!$-;=?-~]{0,200}") {
            if let Ok(uri) = format!("/webhdfs/v1/{query}?{query}").parse()
                && let Ok(parameters) = Parameters::of(&uri)
            {
                prop_assert!(parameters.path.len() <= query.len() * 3 + 1);
                for (name, _) in &parameters.pairs {
                    let _any_number = parameters.long(name, 0);
                    let _any_bits = parameters.permission(name);
                }
                let _any_flags = parameters.create_flags();
            }
        }
    }
}
