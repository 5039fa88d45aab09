//! The raw data of an experiment: a sample for each thing that a peer did in a round.

use std::collections::BTreeMap;

use hayloft_bench::fair::limit::{Limit, Shares};
use hayloft_bench::fair::origin::DataOrigin;
use hayloft_bench::fair::signs::{Signs, is_astray};
use hayloft_bench::fair::spread::Spread;
use serde::{Deserialize, Serialize};

use hayloft_testkit::error::{Result, TestkitError};

/// Figures with a meaning for marks, see [`Record::shares`].
const SHARES: [&str; 5] = ["cpu", "waited", "disk_busy", "link", "peer"];
/// Above this share of what could run, waiting for a processor was a limit.
const HELD_UP: f64 = 0.2;
/// 1 when peer and clients were warm, else 0.
pub const WARM: &str = "warm";

/// A figure: its value, or, of data that kept no more, median, lowest and highest of the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FigureValue {
    /// Of one round.
    One(f64),
    /// Of several rounds.
    Three([f64; 3]),
}

/// Named figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PeerFigures(BTreeMap<String, FigureValue>);

impl PeerFigures {
    /// These.
    pub fn of<const N: usize>(all: [(&str, f64); N]) -> Self {
        all.into_iter()
            .fold(Self::default(), |figures, (name, value)| {
                figures.with(name, value)
            })
    }

    /// With one more.
    #[must_use]
    pub fn with(mut self, name: &str, value: f64) -> Self {
        if value.is_finite() {
            self.0.insert(name.to_owned(), FigureValue::One(value));
        }
        self
    }

    /// With all of these.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// With one more, when there is one.
    #[must_use]
    pub fn with_some(self, name: &str, value: Option<f64>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// A figure of one round.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<f64> {
        match self.0.get(name) {
            Some(FigureValue::One(value)) => Some(*value),
            _ => None,
        }
    }
}

/// Where a figure stands: which part of an experiment, under which circumstances, by whom, at what.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SampleKey {
    /// Part of the experiment.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub part: String,
    /// Circumstances: peers in the same row are compared.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub row: String,
    /// Who.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub peer: String,
    /// What was done.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub what: String,
}

impl SampleKey {
    /// These four.
    #[must_use]
    pub fn new(part: &str, row: &str, peer: &str, what: &str) -> Self {
        let [part, row, peer, what] = [part, row, peer, what].map(str::to_owned);
        Self {
            part,
            row,
            peer,
            what,
        }
    }

    /// The same with something else done, unless that is nothing.
    #[must_use]
    pub(super) fn doing(&self, what: &str) -> Self {
        let what = if what.is_empty() { &self.what } else { what };
        Self::new(&self.part, &self.row, &self.peer, what)
    }

    /// The same by another peer.
    pub(super) fn by(&self, peer: &str) -> Self {
        Self::new(&self.part, &self.row, peer, &self.what)
    }
}

/// What a peer did in a round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeerSample {
    /// Where it stands.
    #[serde(flatten)]
    pub key: SampleKey,
    /// Counted from 0.
    #[serde(default)]
    pub round: usize,
    /// What came of it.
    pub figures: PeerFigures,
    /// What early data says in words.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notes: BTreeMap<String, String>,
}

impl PeerSample {
    /// What came of a round.
    #[must_use]
    pub fn new(key: SampleKey, round: usize, figures: PeerFigures) -> Self {
        let notes = BTreeMap::new();
        Self {
            key,
            round,
            figures,
            notes,
        }
    }

    /// What came of the first round: part, row, peer, what was done.
    #[must_use]
    pub fn first(key: (&str, &str, &str, &str), figures: PeerFigures) -> Self {
        Self::new(SampleKey::new(key.0, key.1, key.2, key.3), 0, figures)
    }
}

/// All of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Commit, date, command, conditions, load before.
    #[serde(flatten)]
    pub origin: DataOrigin,
    /// What was set up, for its page.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// What this machine could not do, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Everything measured.
    pub samples: Vec<PeerSample>,
}

impl Record {
    fn of<'a>(
        &'a self,
        key: &'a SampleKey,
        figure: &'a str,
    ) -> impl Iterator<Item = FigureValue> + 'a {
        let of_key = self.samples.iter().filter(move |sample| sample.key == *key);
        of_key.filter_map(move |sample| sample.figures.0.get(figure).copied())
    }

    /// The values of a figure, a round each, as far as the data has them.
    #[must_use]
    pub fn values(&self, key: &SampleKey, figure: &str) -> Vec<f64> {
        let one = |value| match value {
            FigureValue::One(value) => Some(value),
            FigureValue::Three(_) => None,
        };
        self.of(key, figure).filter_map(one).collect()
    }

    /// Median, lowest and highest of the rounds; `None` when it was not measured.
    #[must_use]
    pub fn spread(&self, key: &SampleKey, figure: &str) -> Option<Spread> {
        let whole = self.of(key, figure).find_map(|value| match value {
            // Of how many rounds is not told: more than one, where they differ.
            FigureValue::Three([median, low, high]) => Some(Spread {
                low,
                median,
                high,
                rounds: if low < high { 2 } else { 1 },
            }),
            FigureValue::One(_) => None,
        });
        whole.or_else(|| Spread::of(self.values(key, figure)))
    }

    /// The sum over all rounds.
    #[must_use]
    pub fn sum(&self, key: &SampleKey, figure: &str) -> Option<f64> {
        self.values(key, figure)
            .into_iter()
            .reduce(|sum, value| sum + value)
    }

    /// What was in use, as medians of the rounds.
    #[must_use]
    pub fn shares(&self, key: &SampleKey) -> Shares {
        let median = |figure: &str| self.spread(key, figure).map(|spread| spread.median);
        let [cpu, waited, disk, link, peer] = SHARES.map(median);
        // Early data has how long threads waited of what they could run, and not of the time.
        let waited = waited.or_else(|| median("held_up").filter(|share| *share > HELD_UP));
        Shares {
            cpu,
            waited,
            disk,
            link,
            peer,
            client: None,
        }
    }

    /// One whose data is signed, for tests of what such data may claim.
    #[cfg(test)]
    pub fn signed(samples: Vec<PeerSample>) -> Self {
        let origin = DataOrigin {
            commit: Some("abc".into()),
            ..DataOrigin::default()
        };
        Self {
            origin,
            samples,
            ..Self::default()
        }
    }

    /// What a reader has to know of a value.
    #[must_use]
    pub fn signs(&self, key: &SampleKey, figure: &str) -> Signs {
        Signs {
            cold: self.values(key, WARM).iter().any(|warm| *warm < 1.0),
            astray: is_astray(&self.values(key, figure)),
            processor: self.shares(key).limit() == Limit::Processor,
        }
    }

    /// The record as JSON, a line a sample: so raw data stays small and diffs readable.
    ///
    /// # Errors
    /// [`TestkitError::Talk`] when a number cannot be written.
    pub fn to_json(&self) -> Result<String> {
        in_lines(self)
    }
}

/// JSON with one sample a line.
///
/// # Errors
/// [`TestkitError::Talk`] when a number cannot be written.
pub fn in_lines(value: &impl Serialize) -> Result<String> {
    let failed = |error: serde_json::Error| TestkitError::Talk(format!("raw data: {error}"));
    let text = serde_json::to_string(value).map_err(failed)?;
    let samples = ["part", "row", "peer", "what"].map(|key| format!("{{\"{key}\":"));
    let text = samples.iter().fold(text, |text, begin| {
        text.replace(begin, &format!("\n{begin}"))
    });
    Ok(text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(round: usize, figures: PeerFigures) -> PeerSample {
        PeerSample::new(SampleKey::new("", "1", "stock", "write"), round, figures)
    }

    #[test]
    fn rounds_make_medians_sums_and_marks() {
        let of =
            |mbs, cpu| PeerFigures::of([("mbs", mbs), ("cpu", cpu), (WARM, 1.0), ("late", 2.0)]);
        let samples = [(10.0, 0.9), (12.0, 0.7), (11.0, 0.9), (14.0, 0.9)];
        let samples = samples
            .iter()
            .enumerate()
            .map(|(at, (mbs, cpu))| sample(at, of(*mbs, *cpu)));
        let record = Record {
            samples: samples.collect(),
            ..Record::default()
        };
        let key = SampleKey::new("", "1", "stock", "write");
        let mbs = record.spread(&key, "mbs").expect("measured");
        assert!(
            (mbs.median - 11.5).abs() < 1e-9,
            "the mean of the two in the middle"
        );
        assert_eq!(record.sum(&key, "late"), Some(8.0));
        assert_eq!(record.shares(&key).limit(), Limit::Processor);
        let signs = record.signs(&key, "mbs");
        assert!(signs.astray && signs.processor && !signs.cold);
        assert_eq!(record.spread(&key.by("Hayloft"), "mbs"), None);
    }

    #[test]
    fn a_record_comes_back_and_early_data_has_three_values() {
        let three = r#"{"command":"c","samples":[
            {"row":"1","peer":"stock","what":"write","figures":{"mbs":[3.0,1.0,4.0]}}]}"#;
        let record: Record = serde_json::from_str(three).expect("reads");
        let key = SampleKey::new("", "1", "stock", "write");
        let mbs = record.spread(&key, "mbs").expect("told");
        assert_eq!((mbs.median, mbs.low, mbs.high), (3.0, 1.0, 4.0));
        let text = record.to_json().expect("writes");
        assert_eq!(text.lines().count(), 2, "{text}");
        let again: Record = serde_json::from_str(&text).expect("reads");
        assert_eq!(again, record);
    }
}
