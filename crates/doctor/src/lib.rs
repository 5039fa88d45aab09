//! `hayloft doctor`: faults of a host, its disks and its network that make a storage node slow or
//! unsafe, what each does, and the command that mends it.
//!
//! A check is split in two. What the kernel, a socket or a small trial shows is gathered into
//! [`facts`], with a limit for everything; what is wrong with that is judged by a pure function
//! ([`CHECKS`]). What could not be looked at is told as such, never as well.
//!
//! | module | what it is |
//! |---|---|
//! | [`seen`] | what a probe saw, or why it could not look |
//! | [`subject`] | whose host: what the configuration says |
//! | [`facts`] | the probes |
//! | [`finding`] | what checks say |
//! | `checks` | the judgements, and the table of them |
//! | [`report`] | what is told |
//!
//! Disks may hang, and with them the process that asks: the caller looks at each directory in a
//! process of its own ([`Probe`]).

mod checks;
pub mod facts;
pub mod finding;
pub mod report;
pub mod seen;
pub mod subject;
#[cfg(test)]
mod tests;

use std::path::Path;

pub use checks::{CHECKS, HostCheck, Needs, named};
pub use facts::trial::{TrialFacts, try_out};
pub use facts::volume::VolumeFacts;
pub use finding::Severity;
pub use report::{Report, markdown};
pub use seen::Looked;
pub use subject::Subject;

use facts::host::HostFacts;
use facts::network::NetworkFacts;
use facts::{Facts, VolumeSeen};
use finding::Verdicts;

/// How a directory is looked at without waiting for its disk for ever.
pub trait Probe: Sync {
    /// [`VolumeFacts::of`], within some seconds.
    ///
    /// # Errors
    /// Why not, such as that the disk gave no answer.
    fn volume(&self, dir: &Path) -> Looked<VolumeFacts>;

    /// [`try_out`], within some seconds.
    ///
    /// # Errors
    /// As [`volume`](Self::volume).
    fn trial(&self, dir: &Path) -> Looked<TrialFacts>;
}

/// Looks at what these checks need, and has them judge it. `write`: whether directories may be
/// written on trial. Takes seconds; NameNodes and disks that give no answer take some more.
#[must_use]
pub fn examine(
    subject: Subject,
    checks: &[&'static HostCheck],
    look: &dyn Probe,
    write: bool,
) -> Report {
    let needs = |need: Needs| checks.iter().any(|check| check.needs.contains(&need));
    let mut volumes = std::thread::scope(|scope| {
        let dirs = subject.volumes.iter().map(|volume| volume.dir.clone());
        let asked = dirs.map(|dir| (dir.clone(), scope.spawn(move || look.volume(&dir))));
        let asked: Vec<_> = asked.collect();
        let seen = asked.into_iter().map(|(dir, asked)| VolumeSeen {
            facts: asked
                .join()
                .unwrap_or_else(|_| Err("cannot be looked at".to_owned())),
            dir,
            trial: None,
        });
        seen.collect::<Vec<_>>()
    });
    if needs(Needs::Trial) {
        // One after the other: they may be on one disk.
        for volume in &mut volumes {
            volume.trial = Some(match (&volume.facts, write) {
                (Err(why), _) => Err(why.clone()),
                (Ok(_), false) => Err("--no-write was given".to_owned()),
                (Ok(_), true) => look.trial(&volume.dir),
            });
        }
    }
    let nodes = volumes.iter().filter_map(|volume| {
        let facts = volume.facts.as_ref().ok()?;
        facts.folder.as_ref().ok()?.as_ref()?.node
    });
    let node = nodes.into_iter().next();
    let synchronised = || hayloft_io::clock_is_synchronised().map_err(|error| error.to_string());
    let facts = Facts {
        host: match needs(Needs::Host) {
            true => HostFacts::of(node),
            false => HostFacts::default(),
        },
        network: needs(Needs::Network).then(|| NetworkFacts::of(&subject, synchronised())),
        subject,
        volumes,
    };
    Report::new(checks, judge(&facts, checks))
}

/// What the checks say of the facts.
fn judge(facts: &Facts, checks: &[&'static HostCheck]) -> Verdicts {
    let mut said = Verdicts::default();
    for check in checks {
        said.turn(check.name);
        (check.judge)(facts, &mut said);
    }
    said
}
