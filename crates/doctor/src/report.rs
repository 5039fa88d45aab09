//! What is told: for people, and as JSON that stays as it is.

use std::cmp::Reverse;
use std::fmt::Write as _;

use serde::Serialize;

use crate::checks::HostCheck;
use crate::finding::{Fault, NotLookedAt, Severity, Verdicts, count};

/// Version of the report as JSON. Fields may be added to it.
const VERSION: u32 = 1;

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Of this form.
    pub version: u32,
    /// The worst that was found; nothing on a host that is well.
    pub worst: Option<Severity>,
    /// Names of the checks that were made.
    pub checks: Vec<&'static str>,
    /// Faults, the worst first.
    pub findings: Vec<Fault>,
    /// What could not be looked at.
    pub not_looked_at: Vec<NotLookedAt>,
}

impl Report {
    /// Of what these checks said.
    #[must_use]
    pub fn new(checks: &[&'static HostCheck], said: Verdicts) -> Self {
        let mut findings = said.found;
        // The order of the checks stays within a severity.
        findings.sort_by_key(|finding| Reverse(finding.severity));
        Self {
            version: VERSION,
            worst: findings.iter().map(|finding| finding.severity).max(),
            checks: checks.iter().map(|check| check.name).collect(),
            findings,
            not_looked_at: said.unseen,
        }
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        for finding in &self.findings {
            let _ = writeln!(
                out,
                "{} {}: {}\n  seen    {}\n  effect  {}\n  mend    {}",
                finding.severity.word(),
                finding.check,
                finding.place,
                finding.seen,
                finding.effect,
                finding.mend
            );
        }
        let mut unseen: Vec<(&str, &str, Vec<&str>)> = Vec::new();
        for of in &self.not_looked_at {
            let same = unseen
                .iter_mut()
                .find(|(place, why, _)| *place == of.place && *why == of.why);
            match same {
                Some((_, _, checks)) => checks.push(of.check),
                None => unseen.push((&of.place, &of.why, vec![of.check])),
            }
        }
        for (place, why, checks) in unseen {
            let _ = writeln!(out, "not looked at {place}: {why} ({})", checks.join(", "));
        }
        let found = |severity| {
            let findings = self.findings.iter();
            findings.filter(|of| of.severity == severity).count()
        };
        let _ = writeln!(
            out,
            "{}: {} bad, {} slow, {}",
            count(self.checks.len(), "check", "checks"),
            found(Severity::Bad),
            found(Severity::Slow),
            count(found(Severity::Note), "note", "notes")
        );
        out
    }
}

/// The table of the documentation.
#[must_use]
pub fn markdown(checks: &[HostCheck]) -> String {
    let mut out = String::from("| Check | Finds | At worst |\n|---|---|---|\n");
    for check in checks {
        let _ = writeln!(
            out,
            "| `{}` | {} | {} |",
            check.name,
            check.finds,
            check.worst.word()
        );
    }
    out
}
