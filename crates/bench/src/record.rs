//! What a run leaves: every sample, and how it was made.

use super::encryption::BenchCipher;
use super::fair::origin::DataOrigin;
use super::fair::signs;
use super::fair::spread::Spread;
use super::figures::{Figure, Figures};
use super::measure::as_f64;
use super::rows::Client;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::machine::{self, CPU_MIB};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// One row measured once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchSample {
    /// What was done.
    pub workload: String,
    /// By whom.
    pub client: Client,
    /// Against which peer.
    pub peer: String,
    /// Round, from 0.
    pub round: u32,
    /// What came of it.
    pub figures: Figures,
    /// Why there are no figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// All of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BenchRecord {
    /// Commit, date, command, conditions, load before.
    #[serde(flatten)]
    pub origin: DataOrigin,
    /// Whether the disk is a model.
    pub modelled: bool,
    /// MiB moved per row.
    pub mib: u64,
    /// Rounds asked for.
    pub rounds: u32,
    /// Memory for data (`hayloft.memory.limit`) besides the 64 MiB of a node, MiB.
    pub memory_limit_mib: u64,
    /// The peers in the order of the tables.
    pub peers: Vec<String>,
    /// Whether the run was ended before its time.
    pub interrupted: bool,
    /// What came before the first round that counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warm_ups: Vec<WarmUp>,
    /// What a reader has to know of rows, as [`super::marks::of`] tells it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<RowMark>,
    /// Everything measured.
    pub samples: Vec<BenchSample>,
}

impl BenchRecord {
    /// Values of a figure over the rounds.
    #[must_use]
    pub fn values(&self, workload: &str, client: Client, peer: &str, figure: Figure) -> Vec<f64> {
        let matching = self.samples.iter().filter(|sample| {
            sample.workload == workload && sample.client == client && sample.peer == peer
        });
        matching
            .filter_map(|sample| sample.figures.get(&figure).copied())
            .collect()
    }

    /// Median and spread of a figure; `None` when it was not measured.
    #[must_use]
    pub fn spread(
        &self,
        workload: &str,
        client: Client,
        peer: &str,
        figure: Figure,
    ) -> Option<Spread> {
        Spread::of(self.values(workload, client, peer, figure))
    }

    /// Whether the peer's rounds of a row, all together, moved enough data to tell processor
    /// time by.
    #[must_use]
    pub fn moved_enough(&self, workload: &str, client: Client, peer: &str) -> bool {
        let operations = ["pread-", "hflush", "hsync", "small-files"];
        let moved = self.samples.iter().filter_map(|sample| {
            let is_it = sample.workload == workload && sample.client == client;
            if !is_it || sample.peer != peer || sample.failed.is_some() {
                return None;
            }
            // Earlier versions did not record it; rows of operations moved little then.
            let rest = !operations.iter().any(|name| workload.starts_with(name));
            let whole = rest.then(|| as_f64(self.mib));
            sample.figures.get(&Figure::Moved).copied().or(whole)
        });
        // The slower the cipher, the less data takes as much processor time.
        let (_, cipher) = BenchCipher::of_row(workload);
        moved.sum::<f64>() * as_f64(cipher.map_or(1, BenchCipher::divisor)) >= CPU_MIB
    }

    /// Workloads and clients in the order in which they were first measured.
    #[must_use]
    pub fn rows(&self) -> Vec<(&str, Client)> {
        let mut rows = Vec::new();
        for sample in &self.samples {
            let row = (sample.workload.as_str(), sample.client);
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        rows
    }

    /// Samples that failed.
    pub fn failures(&self) -> impl Iterator<Item = &BenchSample> {
        self.samples.iter().filter(|sample| sample.failed.is_some())
    }

    /// Writes the raw samples (`results.json`) and the page (`README.md`) into `dir`.
    ///
    /// # Errors
    /// [`TestkitError::File`] naming the file.
    pub fn write(&self, dir: &Path, page: &str) -> Result<()> {
        std::fs::create_dir_all(dir).map_err(TestkitError::file("creating", dir))?;
        for (name, text) in [
            ("results.json", self.to_json()?.as_str()),
            ("README.md", page),
        ] {
            let path = dir.join(name);
            std::fs::write(&path, text).map_err(TestkitError::file("writing", path))?;
        }
        Ok(())
    }

    /// The record as JSON: one line a sample, so that raw data stays small and diffs stay readable.
    ///
    /// # Errors
    /// [`TestkitError::Talk`] when a number cannot be written.
    pub fn to_json(&self) -> Result<String> {
        in_lines(&self.rounded())
    }

    /// With five significant digits: more than any of this is good for.
    #[must_use]
    pub(super) fn rounded(&self) -> Self {
        let mut record = self.clone();
        let samples = record.samples.iter_mut();
        let figures = samples.flat_map(|sample| sample.figures.values_mut());
        let paces = record
            .warm_ups
            .iter_mut()
            .flat_map(|warm_up| &mut warm_up.paces);
        for value in figures.chain(paces) {
            if value.is_finite() && *value != 0.0 {
                let scale = 10_f64.powf(4.0 - value.abs().log10().floor());
                *value = (*value * scale).round() / scale;
            }
        }
        record
    }

    /// Reads what [`BenchRecord::to_json`] wrote.
    ///
    /// # Errors
    /// [`TestkitError::Talk`] when it is something else.
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|error| TestkitError::Talk(format!("results: {error}")))
    }
}

/// JSON with one sample a line, so that a new run is a change that can be read.
pub(super) fn in_lines(value: &impl Serialize) -> Result<String> {
    let failed = |error: serde_json::Error| TestkitError::Talk(format!("results: {error}"));
    let text = serde_json::to_string(value).map_err(failed)?;
    Ok(text.replace("{\"workload\"", "\n{\"workload\"") + "\n")
}

/// Rounds of a row that do not count: a JVM compiles while it works.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WarmUp {
    /// What was done.
    pub workload: String,
    /// By whom.
    pub client: Client,
    /// Against which peer.
    pub peer: String,
    /// What each gave: operations or MB a second.
    pub paces: Vec<f64>,
}

impl WarmUp {
    /// Whether the last two were alike.
    #[must_use]
    pub fn is_warm(&self) -> bool {
        machine::is_warm(&self.paces)
    }
}

/// Why a row is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MarkReason {
    /// No two rounds in a row were alike before it counted.
    NotWarm,
    /// The last round says something else than the median.
    LastRound,
}

/// A mark on a peer's row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowMark {
    /// What was done.
    pub workload: String,
    /// By whom.
    pub client: Client,
    /// By which peer.
    pub peer: String,
    /// Why.
    pub reason: MarkReason,
    /// The one figure that it is about, or all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figure: Option<Figure>,
    /// What was seen, in words.
    pub seen: String,
}

impl MarkReason {
    /// Behind a value in a table.
    #[must_use]
    pub const fn sign(self) -> &'static str {
        match self {
            Self::NotWarm => signs::COLD,
            Self::LastRound => signs::ASTRAY,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Workload, client, peer, figures.
    type BenchRow<'a> = (&'a str, Client, &'a str, &'a [(Figure, f64)]);

    /// A record of one round.
    pub(crate) fn record(rows: &[BenchRow<'_>]) -> BenchRecord {
        let sample = |&(workload, client, peer, figures): &BenchRow<'_>| BenchSample {
            workload: workload.to_owned(),
            client,
            peer: peer.to_owned(),
            round: 0,
            figures: figures.iter().copied().collect(),
            failed: None,
        };
        let mut peers: Vec<String> = Vec::new();
        for row in rows {
            if !peers.iter().any(|peer| peer == row.2) {
                peers.push(row.2.to_owned());
            }
        }
        BenchRecord {
            origin: DataOrigin {
                command: "hayloft-lab bench".into(),
                ..DataOrigin::default()
            },
            mib: 4096,
            memory_limit_mib: 256,
            peers,
            samples: rows.iter().map(sample).collect(),
            ..BenchRecord::default()
        }
    }

    #[test]
    fn json_comes_back_as_it_was() {
        let record = record(&[
            ("write-1", Client::Load, "stock", &[(Figure::Rate, 123.45)]),
            (
                "write-1",
                Client::Java,
                "posix",
                &[(Figure::Rate, 1.0), (Figure::NodeCpu, 0.0)],
            ),
        ]);
        let text = record.to_json().expect("writes");
        let back = BenchRecord::from_json(&text).expect("reads");
        assert_eq!(back.samples, record.samples);
        assert_eq!(back.peers, record.peers);
        let early = text.replace("\"load\"", "\"native\"");
        let early = BenchRecord::from_json(&early).expect("reads earlier ones");
        assert_eq!(early.samples, record.samples);
        let empty = BenchRecord::default().to_json().expect("writes");
        assert!(
            BenchRecord::from_json(&empty)
                .expect("reads")
                .samples
                .is_empty()
        );
    }
}
