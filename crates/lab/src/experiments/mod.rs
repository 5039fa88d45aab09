//! Experiments of the papers, one file each: what it asks, its set-up, what it measures.
//!
//! [`pairs`] and [`layouts`] grow a cluster step by step; [`scaling`] carries out such steps and
//! has their page. [`native`], [`streams`] and [`virtual_disks`] watch one modelled disk,
//! [`fscost`] and [`hadiofs`] a real one; [`one_disk`] has what they share.

mod census;
pub mod degraded;
pub mod dfsio;
pub mod domains;
pub mod durability;
pub mod fscost;
pub mod hadiofs;
pub mod layouts;
mod marks;
pub mod native;
pub mod netblock;
pub mod one_disk;
pub mod pairs;
pub mod parity;
pub mod pfs;
mod remedies;
pub mod scaling;
pub mod streams;
pub mod super_node;
pub mod virtual_disks;

use std::collections::BTreeMap;

use hayloft_testkit::error::{Result, TestkitError};
use one_disk::DiskExperiment;

/// Experiments with the disk of one machine.
pub const DISK_EXPERIMENTS: [DiskExperiment; 5] = [
    native::NATIVE,
    streams::STREAMS,
    fscost::FSCOST,
    virtual_disks::VIRTUAL_DISKS,
    hadiofs::HADIOFS,
];

/// Names of the experiments, with what they show.
pub const EXPERIMENT_NAMES: [(&str, &str); 16] = [
    (pairs::PAIRS.name, pairs::PAIRS.about),
    (layouts::LAYOUTS.name, layouts::LAYOUTS.about),
    (layouts::SCALING.name, layouts::SCALING.about),
    (dfsio::NAME, dfsio::ABOUT),
    (domains::NAME, domains::ABOUT),
    (super_node::NAME, super_node::ABOUT),
    (parity::NAME, parity::ABOUT),
    (degraded::NAME, degraded::ABOUT),
    (netblock::NAME, netblock::ABOUT),
    (pfs::NAME, pfs::ABOUT),
    (durability::NAME, durability::ABOUT),
    (native::NATIVE.name, native::NATIVE.about),
    (streams::STREAMS.name, streams::STREAMS.about),
    (fscost::FSCOST.name, fscost::FSCOST.about),
    (
        virtual_disks::VIRTUAL_DISKS.name,
        virtual_disks::VIRTUAL_DISKS.about,
    ),
    (hadiofs::HADIOFS.name, hadiofs::HADIOFS.about),
];

/// What may be chosen about an experiment.
#[derive(Clone, Debug)]
pub struct ExperimentOptions {
    /// Rounds of every step.
    pub rounds: usize,
    /// MiB that each client writes and reads.
    pub mib: u32,
    /// Largest number of clients and nodes.
    pub largest: usize,
    /// Whose nodes.
    pub kind: String,
    /// Sequential rates of the modelled disks, MB/s: reading, writing.
    pub disk_mbs: (u32, u32),
    /// Rate of the links, Mbit/s.
    pub link_mbit: u32,
    /// Hadoop properties of every process.
    pub conf: BTreeMap<String, String>,
}

impl ExperimentOptions {
    /// The properties, for a page.
    pub(super) fn listed_conf(&self) -> String {
        let listed: Vec<String> = self
            .conf
            .iter()
            .map(|(key, value)| format!("`{key}={value}`"))
            .collect();
        listed.join(", ")
    }
}

impl Default for ExperimentOptions {
    fn default() -> Self {
        Self {
            rounds: 3,
            mib: 192,
            largest: 8,
            kind: "hayloft".into(),
            disk_mbs: (16, 15),
            link_mbit: 200,
            conf: BTreeMap::from(ENGINE.map(|(key, value)| (key.into(), value.into()))),
        }
    }
}

/// A block is on the disk when its close is acknowledged: the page cache of one machine would hide
/// disks from a dozen nodes.
const ENGINE: [(&str, &str); 2] = [
    ("hayloft.io.engine", "direct"),
    ("dfs.datanode.synconclose", "true"),
];

/// Those of an experiment's parts that are wanted, in its order; all if none is named.
///
/// # Errors
/// When there is no such part.
fn chosen(
    experiment: &str,
    parts: &[&'static str],
    wanted: &[String],
) -> Result<Vec<&'static str>> {
    if let Some(part) = wanted.iter().find(|one| !parts.contains(&one.as_str())) {
        return Err(TestkitError::Expectation(format!(
            "there is no part {part} of {experiment}: choose of {}",
            parts.join(", ")
        )));
    }
    let is_wanted = |part: &&str| wanted.is_empty() || wanted.iter().any(|one| one == part);
    Ok(parts.iter().copied().filter(is_wanted).collect())
}

fn in_words((median, low, high): (f64, f64, f64)) -> String {
    format!("{median:.1} ({low:.1} to {high:.1})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_keep_their_order_and_no_other_is_taken() {
        let of = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
            chosen("pfs", &["layouts", "jobs"], &wanted)
        };
        assert_eq!(of(&[]).unwrap(), ["layouts", "jobs"]);
        assert_eq!(of(&["jobs", "layouts"]).unwrap(), ["layouts", "jobs"]);
        assert_eq!(of(&["jobs"]).unwrap(), ["jobs"]);
        let error = of(&["maps"]).unwrap_err().to_string();
        assert!(error.contains("no part maps of pfs"), "{error}");
    }
}
