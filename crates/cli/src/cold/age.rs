//! Which files count as cold: how long ago they were used, and what tells it.

use std::time::Duration;

use hayloft_conf::Configuration;
use serde::Serialize;

const HOUR_S: u64 = 3600;
const DAY_S: u64 = 24 * HOUR_S;
/// Longest age that is asked for: a hundred years.
const AGE_MAX_S: u64 = 36_500 * DAY_S;

/// Key that says how exactly a NameNode keeps access times, milliseconds; 0 for not at all.
pub const PRECISION_KEY: &str = "dfs.namenode.accesstime.precision";

/// Reads `180d`, `26w`, `36h` or `2y` (of 365 days).
///
/// # Errors
/// What is accepted, in words.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || "must be a time such as 180d, 26w, 36h or 2y".to_owned();
    let text = text.trim().to_ascii_lowercase();
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let unit = match text[digits..].trim() {
        "h" => HOUR_S,
        "d" => DAY_S,
        "w" => 7 * DAY_S,
        "y" => 365 * DAY_S,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let seconds = number.checked_mul(unit).filter(|s| *s <= AGE_MAX_S);
    match seconds {
        Some(0) => Err("must be at least an hour".to_owned()),
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => Err("must be at most 100 years".to_owned()),
    }
}

/// What `--times` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TimesAsked {
    /// By access, unless access times are switched off.
    Auto,
    /// The last access or change, the later of them.
    Access,
    /// The last change alone.
    Modification,
}

/// Which times decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ColdBy {
    /// The last access or change, the later of them.
    Access,
    /// The last change alone: access times are switched off, or were not asked for.
    Modification,
}

/// What the configuration says of access times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precision {
    /// There is no configuration to look at.
    Unknown,
    /// They are kept, to within this many milliseconds.
    Kept(u64),
    /// They are switched off; where that is said.
    Off(String),
}

impl Precision {
    /// As the configuration says; an hour when it does not.
    pub fn of(config: Option<&Configuration>) -> Self {
        let Some(config) = config else {
            return Self::Unknown;
        };
        match config.text(PRECISION_KEY).as_deref().map(str::trim) {
            // Hadoop reads the number or fails to start.
            Some(text) => match text.parse::<u64>() {
                Ok(0) => Self::Off(config.origin(PRECISION_KEY).to_string()),
                Ok(ms) => Self::Kept(ms),
                Err(_) => Self::Unknown,
            },
            None => Self::Kept(HOUR_S * 1000),
        }
    }
}

/// The times that decide, and from when on a file counts as used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cutoff {
    /// Milliseconds since 1970; what was used later is not cold.
    pub at_ms: u64,
    /// Which times decide.
    pub by: ColdBy,
}

impl Cutoff {
    /// For what is asked for at `now_ms`.
    pub fn new(age: Duration, now_ms: u64, asked: TimesAsked, precision: &Precision) -> Self {
        let by = match (asked, precision) {
            (TimesAsked::Modification, _) | (TimesAsked::Auto, Precision::Off(_)) => {
                ColdBy::Modification
            }
            _ => ColdBy::Access,
        };
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        Self {
            at_ms: now_ms.saturating_sub(age_ms),
            by,
        }
    }

    /// Whether a file was last used before it.
    ///
    /// A change counts as a use: a file that is written to and never read is not cold.
    pub fn is_cold(&self, modified_ms: u64, accessed_ms: u64) -> bool {
        self.used_ms(modified_ms, accessed_ms) < self.at_ms
    }

    /// When a file was last used, milliseconds since 1970.
    pub fn used_ms(&self, modified_ms: u64, accessed_ms: u64) -> u64 {
        match self.by {
            ColdBy::Access => modified_ms.max(accessed_ms),
            ColdBy::Modification => modified_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_read() {
        let seconds = |text| parse(text).map(|age| age.as_secs());
        assert_eq!(seconds("180d"), Ok(180 * DAY_S));
        assert_eq!(seconds(" 26 W"), Ok(26 * 7 * DAY_S));
        assert_eq!(
            (seconds("36h"), seconds("2y")),
            (Ok(129_600), Ok(730 * DAY_S))
        );
        for wrong in [
            "",
            "180",
            "d",
            "1.5d",
            "-1d",
            "0d",
            "101y",
            "180days",
            "99999999999999999999d",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    fn with(pairs: &[(&str, &str)]) -> Configuration {
        Configuration::from_properties(pairs.iter().copied()).expect("valid")
    }

    #[test]
    fn the_configuration_says_whether_access_times_are_kept() {
        assert_eq!(Precision::of(None), Precision::Unknown);
        assert_eq!(Precision::of(Some(&with(&[]))), Precision::Kept(3_600_000));
        let kept = with(&[(PRECISION_KEY, "1000")]);
        assert_eq!(Precision::of(Some(&kept)), Precision::Kept(1000));
        let off = Precision::of(Some(&with(&[(PRECISION_KEY, "0")])));
        assert!(
            matches!(&off, Precision::Off(place) if !place.is_empty()),
            "{off:?}"
        );
        let by = |asked, precision: &Precision| {
            Cutoff::new(parse("1d").expect("an age"), 0, asked, precision).by
        };
        assert_eq!(by(TimesAsked::Auto, &off), ColdBy::Modification);
        assert_eq!(by(TimesAsked::Access, &off), ColdBy::Access);
        assert_eq!(by(TimesAsked::Auto, &Precision::Unknown), ColdBy::Access);
    }

    #[test]
    fn the_later_of_access_and_change_decides() {
        let age = parse("1d").expect("an age");
        let now = 10 * DAY_S * 1000;
        let kept = Precision::Kept(1);
        let access = Cutoff::new(age, now, TimesAsked::Auto, &kept);
        assert_eq!(access.at_ms, 9 * DAY_S * 1000);
        let (old, new) = (access.at_ms - 1, access.at_ms);
        assert!(access.is_cold(old, old));
        assert!(!access.is_cold(old, new) && !access.is_cold(new, old));
        let change = Cutoff::new(age, now, TimesAsked::Modification, &kept);
        assert!(change.is_cold(old, new) && !change.is_cold(new, old));
    }
}
