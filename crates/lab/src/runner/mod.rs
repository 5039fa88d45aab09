//! What carries out every experiment: peers take turns in each round, the first round does not
//! count, and raw data and page are written after each turn.
//!
//! An [`Experiment`] is data: what it asks, its choices, how one peer is measured once, and what
//! its page shows. [`Run`] is the one runner, [`page`] the one writer of pages.

pub mod options;
pub mod page;
pub mod record;
pub mod table;
mod turn;

use std::path::Path;

use hayloft_bench::fair::origin::{DataOrigin, commits_since};
use hayloft_bench::fair::stock::settings;

use crate::report;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::machine;
use options::ExperimentOptions;
use page::ExperimentPage;
use record::{PeerSample, Record, SampleKey};
use table::Shown;
pub use turn::{PeerTurn, WARM_UP_MIB};
use turn::{label, slug};

/// An experiment of the papers, or one of ours.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// What it asks, in a line.
    pub question: &'static str,
    /// Where a paper asks that; empty: nowhere.
    pub paper: &'static str,
    /// Parts that can be run alone; none: it is one.
    pub parts: &'static [&'static str],
    /// Whether rounds give rates: then the first one does not count.
    pub rates: bool,
    /// Whether Hadoop properties that the operator gives have a use.
    pub takes_properties: bool,
    /// The choices unless the operator makes others.
    pub options: fn() -> ExperimentOptions,
    /// What is set up, for its page.
    pub about: fn(&ExperimentOptions) -> String,
    /// Carries out a part, by [`Run::rounds`].
    pub measure: fn(&mut Run<'_>, &str) -> Result<()>,
    /// What its page shows.
    pub shown: Shown,
}

/// A run under way.
pub struct Run<'a> {
    experiment: &'a Experiment,
    /// The choices.
    pub options: &'a ExperimentOptions,
    /// Where testbeds and disks go.
    pub work: &'a Path,
    out: &'a Path,
    /// Hears what is being done.
    pub tell: &'a mut dyn FnMut(&str),
    /// What was measured so far.
    record: Record,
    /// Parts, rows and peers in the order of tables.
    order: [Vec<String>; 3],
    since: Option<u32>,
}

impl Experiment {
    /// One of rates, without parts, that no paper has; what it is stands beside this.
    pub const OF_RATES: Self = Self {
        name: "",
        question: "",
        paper: "",
        parts: &[],
        rates: true,
        takes_properties: true,
        options: ExperimentOptions::default,
        about: |_| String::new(),
        measure: |_, _| Ok(()),
        shown: Shown::NOTHING,
    };

    /// Whose question it is.
    #[must_use]
    pub fn from(&self) -> &'static str {
        match self.paper {
            "" => "ours",
            paper => paper,
        }
    }

    /// Carries out these parts, all if none is named, with files below `work`. Page and raw data go
    /// to `out` after each turn, so an interrupted run leaves what it has. Gives back the page and
    /// the raw data.
    ///
    /// # Errors
    /// When there is no such part, something is missing here, or a peer fails; what was measured
    /// before is in `out`.
    pub fn run(
        &self,
        (options, parts): (&ExperimentOptions, &[String]),
        command: &str,
        (work, out): (&Path, &Path),
        tell: &mut dyn FnMut(&str),
    ) -> Result<(String, Record)> {
        let parts = self.chosen(parts)?;
        for dir in [work, out] {
            std::fs::create_dir_all(dir).map_err(TestkitError::file("creating", dir))?;
        }
        let mut conditions = machine::describe();
        conditions.extend(options.listed());
        conditions.insert("stock nodes' settings".into(), settings(|_| true));
        let origin = DataOrigin::now(command, conditions);
        let mut run = Run {
            since: origin.signed().and_then(commits_since),
            record: Record {
                origin,
                about: (self.about)(options),
                ..Record::default()
            },
            experiment: self,
            options,
            work,
            out,
            tell,
            order: Default::default(),
        };
        for part in parts {
            (self.measure)(&mut run, part)?;
        }
        let page = run.save()?;
        Ok((page, run.record))
    }

    /// Those of its parts that are wanted, in its order; all if none is named.
    ///
    /// # Errors
    /// When there is no such part.
    pub fn chosen(&self, wanted: &[String]) -> Result<Vec<&'static str>> {
        if let Some(part) = wanted
            .iter()
            .find(|one| !self.parts.contains(&one.as_str()))
        {
            let choose = match self.parts {
                [] => "it has none".to_owned(),
                parts => format!("choose of {}", parts.join(", ")),
            };
            let text = format!("there is no part {part} of {}: {choose}", self.name);
            return Err(TestkitError::Expectation(text));
        }
        if self.parts.is_empty() {
            return Ok(vec![""]);
        }
        let is_wanted = |part: &&str| wanted.is_empty() || wanted.iter().any(|one| one == part);
        Ok(self.parts.iter().copied().filter(is_wanted).collect())
    }
}

/// The order of so many peers in a round: who was first in one is last in the next.
fn turns(round: usize, peers: usize) -> impl Iterator<Item = usize> {
    (0..peers).map(move |turn| (turn + round) % peers)
}

/// Our node among peers.
pub const OURS: &str = "Hayloft";

impl Run<'_> {
    /// Bytes of a stream.
    #[must_use]
    pub fn stream_bytes(&self) -> u64 {
        u64::from(self.options.mib) << 20
    }

    /// Adds a condition under which it was measured, for the page.
    pub fn add_condition(&mut self, name: &str, value: String) {
        self.record.origin.conditions.insert(name.to_owned(), value);
    }

    /// Names what this machine cannot do, for the page.
    pub fn leave_out(&mut self, what: String) {
        if !self.record.left_out.contains(&what) {
            self.record.left_out.push(what);
        }
    }

    /// The one loop of all experiments: in each round each of `peers` (row and name) has its turn,
    /// by `measure`, which is told its position. The round before those that count is not recorded,
    /// and left out where the first [counts](ExperimentOptions::first_counts).
    ///
    /// # Errors
    /// The first of `measure`; what was measured before is saved.
    pub fn rounds<S: AsRef<str>>(
        &mut self,
        part: &str,
        peers: &[(S, S)],
        measure: &mut dyn FnMut(&mut PeerTurn<'_>, usize) -> Result<()>,
    ) -> Result<()> {
        for (row, peer) in peers {
            self.declare(&SampleKey::new(part, row.as_ref(), peer.as_ref(), ""));
        }
        let dropped = usize::from(self.experiment.rates && !self.options.first_counts);
        for round in 0..self.options.rounds + dropped {
            for at in turns(round, peers.len()) {
                let (row, peer) = (peers[at].0.as_ref(), peers[at].1.as_ref());
                let key = SampleKey::new(part, row, peer, "");
                let which = match round.checked_sub(dropped) {
                    Some(round) => format!("round {}", round + 1),
                    None => "a round that does not count".into(),
                };
                let label = label(&key);
                (self.tell)(&format!("{label}: {which}"));
                let mut turn = PeerTurn {
                    options: self.options,
                    dir: self.work.join(slug(&label)),
                    out: self.out.join(slug(&label)),
                    command: &self.record.origin.command,
                    round: round.saturating_sub(dropped),
                    counts: round >= dropped,
                    key,
                    tell: self.tell,
                    given: Vec::new(),
                };
                let dir = &turn.dir;
                std::fs::create_dir_all(dir).map_err(TestkitError::file("creating", dir))?;
                measure(&mut turn, at)?;
                let (counts, given) = (turn.counts, turn.given);
                if counts {
                    self.keep(given);
                    self.save()?;
                }
            }
        }
        Ok(())
    }

    fn declare(&mut self, key: &SampleKey) {
        for (known, name) in self.order.iter_mut().zip([&key.part, &key.row, &key.peer]) {
            if !known.contains(name) {
                known.push(name.clone());
            }
        }
    }

    /// Keeps samples in the order of tables, not of turns.
    fn keep(&mut self, given: Vec<PeerSample>) {
        given.iter().for_each(|sample| self.declare(&sample.key));
        self.record.samples.extend(given);
        let at = |known: &[String], name: &String| known.iter().position(|one| one == name);
        let [parts, rows, peers] = &self.order;
        self.record.samples.sort_by_key(|sample| {
            let key = &sample.key;
            (
                at(parts, &key.part),
                at(rows, &key.row),
                at(peers, &key.peer),
            )
        });
    }

    /// Writes page, plots and raw data of all turns so far; the page.
    fn save(&self) -> Result<String> {
        let page = ExperimentPage::new(&self.experiment.shown, &self.record);
        let text = page.whole(self.since);
        report::save(self.out, "README.md", &text)?;
        report::save(self.out, "record.json", &self.record.to_json()?)?;
        for plot in self.experiment.shown.plots {
            let path = self.out.join(format!("{}.svg", plot.name));
            let title = format!("{}: {}", self.experiment.name, plot.name.replace('-', " "));
            report::plot_lines(&title, &page.lines(plot.of), &path)?;
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::record::PeerFigures;
    use super::*;

    const RATES: Experiment = Experiment {
        name: "rates",
        question: "",
        paper: "",
        parts: &["one", "two"],
        rates: true,
        takes_properties: true,
        options: ExperimentOptions::default,
        about: |_| "Two peers.".into(),
        measure: |run, part| {
            let mut calls = 0.0;
            let peers = [("1", "stock"), ("1", OURS)];
            run.rounds(part, &peers, &mut |turn, at| {
                calls += 1.0;
                assert_eq!(turn.mib(), if turn.counts { 1000 } else { WARM_UP_MIB });
                turn.give(
                    "write",
                    PeerFigures::of([("call", calls), ("at", [0.0, 1.0][at])]),
                );
                Ok(())
            })
        },
        shown: Shown::NOTHING,
    };

    #[test]
    fn peers_take_turns_and_the_first_round_is_dropped() {
        let dir = tempfile::tempdir().expect("a directory");
        let options = ExperimentOptions {
            rounds: 2,
            mib: 1000,
            ..ExperimentOptions::default()
        };
        let mut said = Vec::new();
        let (work, out) = (dir.path().join("work"), dir.path().join("out"));
        let page = RATES.run(
            (&options, &["two".into()]),
            "c",
            (&work, &out),
            &mut |what| {
                said.push(what.to_owned());
            },
        );
        let (page, _) = page.expect("it runs");
        let said: Vec<&str> = said.iter().map(String::as_str).collect();
        let wanted = [
            "two, 1, stock: a round that does not count",
            "two, 1, Hayloft: a round that does not count",
            "two, 1, Hayloft: round 1",
            "two, 1, stock: round 1",
            "two, 1, stock: round 2",
            "two, 1, Hayloft: round 2",
        ];
        assert_eq!(said, wanted);
        let text = std::fs::read_to_string(out.join("record.json")).expect("it is there");
        let record: Record = serde_json::from_str(&text).expect("it is JSON");
        let calls = |peer: &str| record.values(&SampleKey::new("two", "1", peer, "write"), "call");
        assert_eq!(
            (calls("stock"), calls(OURS)),
            (vec![4.0, 5.0], vec![3.0, 6.0])
        );
        assert_eq!(
            record.samples[0].key.peer, "stock",
            "in the order of tables"
        );
        assert!(record.origin.date.is_some() && record.origin.load_before.is_some());
        assert_eq!(record.origin.conditions["block size"], "128 MiB");
        assert!(page.contains("Two peers."), "{page}");
    }

    #[test]
    fn a_run_that_asks_whether_it_works_has_one_round() {
        let dir = tempfile::tempdir().expect("a directory");
        let options = ExperimentOptions {
            rounds: 1,
            first_counts: true,
            mib: 1000,
            ..ExperimentOptions::default()
        };
        let mut said = Vec::new();
        let (work, out) = (dir.path().join("work"), dir.path().join("out"));
        let tell = &mut |what: &str| said.push(what.to_owned());
        let ran = RATES.run((&options, &["one".into()]), "c", (&work, &out), tell);
        let (page, _) = ran.expect("it runs");
        assert_eq!(said, ["one, 1, stock: round 1", "one, 1, Hayloft: round 1"]);
        assert!(page.contains("its first round counts"), "{page}");
    }

    #[test]
    fn parts_keep_their_order_and_no_other_is_taken() {
        let of = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
            RATES.chosen(&wanted)
        };
        assert_eq!(of(&[]).unwrap(), ["one", "two"]);
        assert_eq!(of(&["two", "one"]).unwrap(), ["one", "two"]);
        let error = of(&["maps"]).unwrap_err().to_string();
        assert!(
            error.contains("no part maps of rates: choose of one, two"),
            "{error}"
        );
    }
}
