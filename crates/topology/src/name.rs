//! Names and racks, checked before they become part of a path in a NameNode's topology.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// Characters of a name: host names have 253 at most, and a cloud's ids fewer.
const NAME_CHARS: usize = 253;
/// Levels of a rack, as `FileTopologyMapping` allows them.
const LEVELS: usize = 8;

/// A name of letters, digits, `.`, `_` and `-` that begins with a letter or a digit.
///
/// Other names are refused, not mended: two that differ must not become one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SafeName(String);

impl SafeName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SafeName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !begins || !text.chars().all(safe) {
            let shown: String = text.chars().take(60).collect();
            return Err(format!(
                "{shown:?} is no safe name: letters, digits, '.', '_' and '-', and no sign first"
            ));
        }
        if text.len() > NAME_CHARS {
            return Err(format!("a name of {} characters is too long", text.len()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for SafeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A location in Hadoop's topology: `/a/b`, one to eight safe names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RackPath(String);

impl RackPath {
    /// The last level where nothing is known below the zone.
    pub(crate) const UNPLACED: &'static str = "unplaced";

    /// `/zone/unit`.
    pub(crate) fn within(zone: &SafeName, unit: Option<&SafeName>) -> Self {
        let unit = unit.map_or(Self::UNPLACED, SafeName::as_str);
        Self(format!("/{zone}/{unit}"))
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// How many levels it has.
    pub fn levels(&self) -> usize {
        self.0.matches('/').count()
    }

    /// The same as one level: `/a-b`. Racks of two levels and `/default-rack` do not go together.
    pub fn flat(&self) -> Self {
        Self(format!("/{}", self.0[1..].replace('/', "-")))
    }

    /// Whether it says more than the zone.
    pub fn is_exact(&self) -> bool {
        !self.0.ends_with(Self::UNPLACED)
    }
}

impl FromStr for RackPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text
            .strip_prefix('/')
            .ok_or("a rack begins with /, as /rack1")?;
        let mut levels = 0;
        for level in rest.split('/') {
            level.parse::<SafeName>()?;
            levels += 1;
        }
        if levels > LEVELS {
            return Err(format!("a rack of {levels} levels; the limit is {LEVELS}"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for RackPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_leave_their_level_are_refused() {
        for bad in ["", ".", "..", "-x", "a/b", "a b", "a\n", "a#b", "é", "a;b"] {
            assert!(bad.parse::<SafeName>().is_err(), "{bad:?}");
        }
        assert!("x".repeat(254).parse::<SafeName>().is_err());
        assert!("us-east-1a".parse::<SafeName>().is_ok());
    }

    #[test]
    fn racks_have_safe_levels() {
        for bad in ["", "/", "a", "/a//b", "/a/", "/a/../b", "/a b"] {
            assert!(bad.parse::<RackPath>().is_err(), "{bad:?}");
        }
        assert!(format!("{}/x", "/a".repeat(8)).parse::<RackPath>().is_err());
        let rack: RackPath = "/dc1/r1".parse().expect("safe");
        assert_eq!((rack.levels(), rack.flat().as_str()), (2, "/dc1-r1"));
    }
}
