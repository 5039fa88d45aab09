//! What may be chosen about an experiment.

use std::collections::BTreeMap;

use hayloft_bench::fair::stock::BLOCK_MIB;

/// The choices of a run.
#[derive(Clone, Debug)]
pub struct ExperimentOptions {
    /// Rounds that count.
    pub rounds: usize,
    /// No round goes before those that count: what is measured is whether it works.
    pub first_counts: bool,
    /// MiB that each client or stream writes and reads.
    pub mib: u32,
    /// Block size, MiB.
    pub block_mib: u32,
    /// Largest number of clients and nodes.
    pub largest: usize,
    /// Whose nodes, where one kind is measured.
    pub kind: String,
    /// Sequential rates of the modelled disks, MB/s: reading, writing. Zeros: it models none, or
    /// says itself which.
    pub disk_mbs: (u32, u32),
    /// Rate of the links, Mbit/s. Zero: it has none that can be chosen.
    pub link_mbit: u32,
    /// Hadoop properties of every process, over those of the experiment.
    pub conf: BTreeMap<String, String>,
    /// Blocks of an experiment that counts them.
    pub blocks: u64,
    /// Seconds that clients write before an event.
    pub seconds: u64,
    /// Of file sizes and contents.
    pub seed: u64,
    /// What a host draws, where that matters; 0: not known.
    pub watts: u32,
}

impl ExperimentOptions {
    /// The settings, for a record.
    pub(super) fn listed(&self) -> BTreeMap<String, String> {
        let conf = self
            .conf
            .iter()
            .map(|(key, value)| format!("{key}={value}"));
        let disks = match self.disk_mbs {
            (0, 0) => String::new(),
            (read, write) => format!("{read} MB/s reading, {write} writing"),
        };
        let first = match self.first_counts {
            true => "its first round counts",
            false => "",
        };
        let links = match self.link_mbit {
            0 => String::new(),
            rate => format!("{rate} Mbit/s"),
        };
        [
            ("properties", conf.collect::<Vec<_>>().join(" ")),
            ("block size", format!("{} MiB", self.block_mib)),
            ("modelled disks", disks),
            ("links", links),
            ("data", format!("{} MiB a client or stream", self.mib)),
            ("a look only", first.to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .collect()
    }
}

impl Default for ExperimentOptions {
    fn default() -> Self {
        Self {
            rounds: 3,
            first_counts: false,
            mib: 192,
            block_mib: BLOCK_MIB,
            largest: 8,
            kind: "hayloft".into(),
            disk_mbs: (0, 0),
            link_mbit: 0,
            conf: BTreeMap::new(),
            blocks: 2000,
            seconds: 60,
            seed: 1,
            watts: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_names_no_disk_and_no_link_that_is_not_there() {
        let listed = |disk_mbs, link_mbit| {
            let options = ExperimentOptions {
                disk_mbs,
                link_mbit,
                ..ExperimentOptions::default()
            };
            options.listed()
        };
        let none = listed((0, 0), 0);
        assert!(!none.contains_key("modelled disks") && !none.contains_key("links"));
        let some = listed((105, 95), 25);
        assert_eq!(some["modelled disks"], "105 MB/s reading, 95 writing");
        assert_eq!(some["links"], "25 Mbit/s");
    }
}
