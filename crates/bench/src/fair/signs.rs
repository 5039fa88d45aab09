//! Signs behind a value: what a reader has to know before believing it.

/// Rounds before those that count were not alike.
pub const COLD: &str = "\\*";
/// The last round says something else than the median.
pub const ASTRAY: &str = "†";
/// Processors limited it.
pub const PROCESSOR: &str = "§";

/// Share of a median by which a last round may be off.
const OFF: f64 = 0.05;

/// What is known of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// See [`COLD`].
    pub cold: bool,
    /// See [`ASTRAY`].
    pub astray: bool,
    /// See [`PROCESSOR`].
    pub processor: bool,
}

impl Signs {
    /// The signs, for behind the value.
    #[must_use]
    pub fn text(self) -> String {
        let all = [
            (self.cold, COLD),
            (self.astray, ASTRAY),
            (self.processor, PROCESSOR),
        ];
        let is = all.into_iter().filter(|(is, _)| *is);
        is.map(|(_, sign)| sign).collect()
    }
}

/// Whether the last of at least three rounds is off their median.
#[must_use]
pub fn is_astray(values: &[f64]) -> bool {
    let median = super::spread::Spread::median(values.to_vec());
    let last = values.last().copied().unwrap_or(median);
    values.len() > 2 && (last - median).abs() > OFF * last.abs().max(median.abs())
}

/// What the signs in a text mean, a line each; nothing for those that it lacks.
#[must_use]
pub fn legend(text: &str) -> String {
    let meanings = [
        (
            COLD,
            "not warm: no two rounds in a row were within 5 % before it counted.",
        ),
        (ASTRAY, "the last round contradicts the median."),
        (
            PROCESSOR,
            "processors limited it: more than 80 % in use, or threads waited for one for more \
             than 5 % of the wall time.",
        ),
    ];
    let used = meanings.iter().filter(|(sign, _)| text.contains(sign));
    used.map(|(sign, means)| format!("{sign} {means}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_round_is_astray_beyond_five_per_cent() {
        assert!(!is_astray(&[100.0, 101.0, 104.0]));
        assert!(is_astray(&[100.0, 101.0, 120.0]));
        assert!(!is_astray(&[100.0, 120.0]), "too few to tell");
    }

    #[test]
    fn only_signs_that_are_used_are_explained() {
        let signs = Signs {
            cold: true,
            processor: true,
            ..Signs::default()
        };
        assert_eq!(signs.text(), "\\*§");
        let said = legend("| 1.0§ |");
        assert!(said.starts_with("§ processors") && said.lines().count() == 1);
        assert_eq!(legend("| 1.0 |"), "");
    }
}
