//! One peer's turn in one round: what it may use, and what it gives.

use std::path::PathBuf;

use super::options::ExperimentOptions;
use super::record::{self, PeerFigures, PeerSample, SampleKey};
use crate::describe::Description;
use crate::report;
use crate::warm;
use crate::workload::WorkloadOutcome;
use hayloft_testkit::error::Result;

/// Most of a client or stream in a round that does not count, MiB.
pub const WARM_UP_MIB: u32 = 256;

/// What a turn is called: part, row and peer.
pub(super) fn label(key: &SampleKey) -> String {
    let parts = [&key.part, &key.row, &key.peer];
    let parts: Vec<&str> = parts
        .iter()
        .map(|part| part.as_str())
        .filter(|p| !p.is_empty())
        .collect();
    parts.join(", ")
}

/// A directory's name for what a label says.
pub(super) fn slug(label: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    label.chars().map(safe).collect()
}

/// A peer's turn in a round.
pub struct PeerTurn<'a> {
    /// The choices.
    pub options: &'a ExperimentOptions,
    /// Where its testbed or disk goes.
    pub dir: PathBuf,
    pub(super) out: PathBuf,
    pub(super) command: &'a str,
    /// The round, counted from 0.
    pub round: usize,
    /// Whether it counts.
    pub counts: bool,
    pub(super) key: SampleKey,
    pub(super) tell: &'a mut dyn FnMut(&str),
    pub(super) given: Vec<PeerSample>,
}

impl PeerTurn<'_> {
    /// Says what is being done.
    pub fn tell(&mut self, what: &str) {
        let label = label(&self.key);
        (self.tell)(&format!("{label}: {what}"));
    }

    /// Repeats `round`, counted from 0, as [`warm::up`] does; 1 when it is warm, else 0. A turn
    /// that does not count warms nothing but this machine's own caches.
    ///
    /// # Errors
    /// The first of `round`.
    pub fn warm_up(&mut self, mut round: impl FnMut(usize) -> Result<f64>) -> Result<f64> {
        let warm = self.counts
            && warm::up(self.warm_rounds(), |number| {
                self.tell(&format!("warming up, round {}", number + 1));
                round(number)
            })?;
        Ok(f64::from(u8::from(warm)))
    }

    /// Rounds that warm up, at most. Where nothing is measured one shows that they work.
    #[must_use]
    pub fn warm_rounds(&self) -> usize {
        match self.options.first_counts {
            true => 1,
            false => warm::ROUNDS_MOST,
        }
    }

    /// MiB that each client or stream moves: little in a round that does not count.
    #[must_use]
    pub fn mib(&self) -> u32 {
        let most = if self.counts { u32::MAX } else { WARM_UP_MIB };
        self.options.mib.min(most)
    }

    /// Gives what came of something that the peer did.
    pub fn give(&mut self, what: &str, figures: PeerFigures) {
        let row = self.key.row.clone();
        self.give_in(&row, what, figures);
    }

    /// Adds figures to what was given of that thing in the turn's row.
    pub fn add(&mut self, what: &str, figures: PeerFigures) {
        let row = self.key.row.clone();
        let key = SampleKey::new(&self.key.part, &row, &self.key.peer, what);
        let given = self.given.iter_mut().find(|sample| sample.key == key);
        match given {
            Some(sample) => sample.figures = std::mem::take(&mut sample.figures).and(figures),
            None => self.give(what, figures),
        }
    }

    /// Gives what came of another peer, which worked at the same time.
    pub fn give_of(&mut self, peer: &str, figures: PeerFigures) {
        let key = self.key.by(peer);
        let round = self.round;
        self.given.push(PeerSample::new(key, round, figures));
    }

    /// Gives what came under other circumstances than those of the turn.
    pub fn give_in(&mut self, row: &str, what: &str, figures: PeerFigures) {
        let SampleKey { part, peer, .. } = &self.key;
        let key = SampleKey::new(part, row, peer, what);
        self.given.push(PeerSample::new(key, self.round, figures));
    }

    /// Gives every phase of a workload, and leaves description, plot and samples beside the page.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn give_outcome(
        &mut self,
        described: &Description,
        outcome: &WorkloadOutcome,
    ) -> Result<()> {
        let row = self.key.row.clone();
        self.give_outcome_in(&row, described, outcome)
    }

    /// The same under other circumstances.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn give_outcome_in(
        &mut self,
        row: &str,
        described: &Description,
        outcome: &WorkloadOutcome,
    ) -> Result<()> {
        let warm = outcome.warm.map(|warm| f64::from(u8::from(warm)));
        for phase in &outcome.phases {
            let figures = phase.figures(described).with_some(record::WARM, warm);
            self.give_in(row, phase.what, figures);
        }
        if self.counts {
            let at = if row == self.key.row {
                String::new()
            } else {
                slug(row)
            };
            report::write(described, outcome, self.command, &self.out.join(at))?;
        }
        Ok(())
    }
}
