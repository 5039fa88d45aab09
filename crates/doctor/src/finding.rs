//! What a check found, and what it could not look at.

use std::fmt::Display;

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Good to know; nothing has to be done.
    Note,
    /// Nodes work, and are slower than they could be, or near a limit.
    Slow,
    /// Data or service is at risk.
    Bad,
}

impl Severity {
    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Slow => "slow",
            Self::Bad => "bad",
        }
    }
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Name of the check.
    pub check: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// A directory, device, interface or NameNode; `host` for all of it.
    pub place: String,
    /// What was seen.
    pub seen: String,
    /// What that does to a node, in plain words.
    pub effect: String,
    /// A command, or a property, that mends it.
    pub mend: String,
}

/// Something that a check could not look at. It may be well, and it may not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotLookedAt {
    /// Name of the check.
    pub check: &'static str,
    /// As in [`Fault`].
    pub place: String,
    /// Why not.
    pub why: String,
}

/// What checks have said so far.
#[derive(Debug, Default)]
pub struct Verdicts {
    /// The check that speaks.
    check: &'static str,
    /// What is wrong.
    pub found: Vec<Fault>,
    /// What is not known.
    pub unseen: Vec<NotLookedAt>,
}

impl Verdicts {
    /// Lets a check speak.
    pub fn turn(&mut self, check: &'static str) {
        self.check = check;
    }

    /// Adds a fault: place, what was seen, its effect, what mends it.
    pub fn add(&mut self, severity: Severity, place: &str, [seen, effect, mend]: [&str; 3]) {
        let finding = Fault {
            check: self.check,
            severity,
            place: place.to_owned(),
            seen: seen.to_owned(),
            effect: effect.to_owned(),
            mend: mend.to_owned(),
        };
        // Two volumes on one disk have its faults once.
        if !self.found.contains(&finding) {
            self.found.push(finding);
        }
    }

    /// Adds a fault that puts data or service at risk.
    pub fn bad(&mut self, place: &str, seen_effect_mend: [&str; 3]) {
        self.add(Severity::Bad, place, seen_effect_mend);
    }

    /// Adds a fault that costs speed.
    pub fn slow(&mut self, place: &str, seen_effect_mend: [&str; 3]) {
        self.add(Severity::Slow, place, seen_effect_mend);
    }

    /// Adds a remark.
    pub fn note(&mut self, place: &str, seen_effect_mend: [&str; 3]) {
        self.add(Severity::Note, place, seen_effect_mend);
    }

    /// Says that something was not looked at.
    pub fn unseen(&mut self, place: &str, why: &str) {
        let unseen = NotLookedAt {
            check: self.check,
            place: place.to_owned(),
            why: why.to_owned(),
        };
        if !self.unseen.contains(&unseen) {
            self.unseen.push(unseen);
        }
    }

    /// What was seen; says why where it was not.
    pub fn look<'a, T>(&mut self, place: &str, seen: &'a Result<T, String>) -> Option<&'a T> {
        match seen {
            Ok(seen) => Some(seen),
            Err(why) => {
                self.unseen(place, why);
                None
            }
        }
    }
}

/// A number with its word: `1 host`, `2 hosts`.
#[must_use]
pub fn count(number: impl Display, one: &str, more: &str) -> String {
    let number = number.to_string();
    let word = if number == "1" { one } else { more };
    format!("{number} {word}")
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn one_and_more() {
        let hosts = |number: u64| count(number, "host", "hosts");
        assert_eq!(
            [hosts(0), hosts(1), hosts(2)],
            ["0 hosts", "1 host", "2 hosts"]
        );
    }
}
