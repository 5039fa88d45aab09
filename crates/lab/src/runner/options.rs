//! What may be chosen about an experiment.

use std::collections::BTreeMap;

use hayloft_bench::fair::stock::BLOCK_MIB;

/// The choices of a run.
#[derive(Clone, Debug)]
pub struct ExperimentOptions {
    /// Rounds that count.
    pub rounds: usize,
    /// MiB that each client or stream writes and reads.
    pub mib: u32,
    /// Block size, MiB.
    pub block_mib: u32,
    /// Largest number of clients and nodes.
    pub largest: usize,
    /// Whose nodes, where one kind is measured.
    pub kind: String,
    /// Sequential rates of the modelled disks, MB/s: reading, writing.
    pub disk_mbs: (u32, u32),
    /// Rate of the links, Mbit/s.
    pub link_mbit: u32,
    /// Hadoop properties of every process, over those of the experiment.
    pub conf: BTreeMap<String, String>,
    /// Blocks of an experiment that counts them.
    pub blocks: u64,
    /// Seconds that clients write before an event.
    pub seconds: u64,
    /// Of file sizes and contents.
    pub seed: u64,
}

impl ExperimentOptions {
    /// The settings, for a record.
    pub(super) fn listed(&self) -> BTreeMap<String, String> {
        let conf = self
            .conf
            .iter()
            .map(|(key, value)| format!("{key}={value}"));
        let (read, write) = self.disk_mbs;
        [
            ("properties", conf.collect::<Vec<_>>().join(" ")),
            ("block size", format!("{} MiB", self.block_mib)),
            (
                "modelled disks",
                format!("{read} MB/s reading, {write} writing"),
            ),
            ("links", format!("{} Mbit/s", self.link_mbit)),
            ("data", format!("{} MiB a client or stream", self.mib)),
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
            mib: 192,
            block_mib: BLOCK_MIB,
            largest: 8,
            kind: "hayloft".into(),
            disk_mbs: (16, 15),
            link_mbit: 200,
            conf: BTreeMap::new(),
            blocks: 2000,
            seconds: 60,
            seed: 1,
        }
    }
}
