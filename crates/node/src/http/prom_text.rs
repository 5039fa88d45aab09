//! Prometheus' text format. All names begin with `hayloft_`; units are in the names.

use std::fmt::Write as _;

/// A text that grows by metrics.
#[derive(Default)]
pub(super) struct Exposition(String);

impl Exposition {
    /// The text.
    pub(super) fn into_text(self) -> String {
        self.0
    }

    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP hayloft_{name} {help}");
        let _ = writeln!(self.0, "# TYPE hayloft_{name} {kind}");
    }

    pub(super) fn sample(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        value: impl std::fmt::Display,
    ) {
        let _ = write!(self.0, "hayloft_{name}");
        if !labels.is_empty() {
            let pairs = labels
                .iter()
                .map(|(key, value)| format!("{key}=\"{}\"", escaped(value)));
            let pairs: Vec<String> = pairs.collect();
            let _ = write!(self.0, "{{{}}}", pairs.join(","));
        }
        let _ = writeln!(self.0, " {value}");
    }

    pub(super) fn one(
        &mut self,
        (name, kind): (&str, &str),
        help: &str,
        value: impl std::fmt::Display,
    ) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }
}

/// As the format wants values of labels.
pub(super) fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_lines_are_whole() {
        let mut text = Exposition::default();
        text.one(("a_total", "counter"), "Of a.", 7);
        text.family("b", "gauge", "Of b.");
        text.sample("b", &[("volume", "/d\"\\\n")], 1.5);
        let wanted = "# HELP hayloft_a_total Of a.\n# TYPE hayloft_a_total counter\n\
                      hayloft_a_total 7\n# HELP hayloft_b Of b.\n# TYPE hayloft_b gauge\n\
                      hayloft_b{volume=\"/d\\\"\\\\\\n\"} 1.5\n";
        assert_eq!(text.0, wanted);
    }
}
