//! What HDFS leaves of a disk's rate, with one replica and with three (the thesis' Table 1.1): one
//! stream straight to the file system of a modelled disk, then one client through nodes on it.
//!
//! With three replicas three nodes share the disk, so it gets three streams at once as each disk of
//! a cluster does in which every client writes. The rate of writing counts all copies.

use super::one_disk::streams::{StreamAccess, THESIS_BLOCK_MIB, with_source};
use super::one_disk::{self, WatchedDisk, stream_round, warm_round};
use crate::runner::options::ExperimentOptions;
use crate::runner::table::Shown;
use crate::runner::{Experiment, Run};
use hayloft_testkit::error::Result;
use hayloft_testkit::modelled::HostedFileSystem;

/// The experiment.
pub const NATIVE: Experiment = Experiment {
    name: "native",
    question: "what HDFS leaves of a disk's own rate, with one replica and with three",
    paper: "the thesis' Table 1.1",
    options: || ExperimentOptions {
        mib: 4096,
        rounds: 5,
        block_mib: THESIS_BLOCK_MIB,
        ..one_disk::options()
    },
    about: |options| {
        format!(
            "One modelled hard disk (not a real one) with ext4, one stream of {} MiB. The clock \
             stops when all that was written is on the disk; caches are dropped before reading. \
             With three replicas three nodes share the disk: writing counts all copies, reading \
             takes one copy of each block. {}",
            options.mib,
            StreamAccess::explained(options)
        )
    },
    measure: carry_out,
    shown: Shown {
        title: "What HDFS leaves of a disk",
        tables: include_str!("tables/native.txt"),
        paper: "Table 1.1, a real disk:\n\n\
                | | write MB/s | of native | read MB/s | of native |\n|---|---|---|---|---|\n\
                | native | 95 | 100 % | 105 | 100 % |\n\
                | HDFS | 68 | 72 % | 72 | 69 % |\n\
                | HDFS, 3 replicas, all copies | 36 | 38 % | 54 | 51 % |",
        ..Shown::NOTHING
    },
    ..Experiment::OF_RATES
};

/// Replicas, and who takes part with so many.
fn peers() -> Vec<(usize, Vec<StreamAccess>)> {
    vec![(1, StreamAccess::all()), (3, StreamAccess::nodes())]
}

fn carry_out(run: &mut Run<'_>, part: &str) -> Result<()> {
    for (replicas, accesses) in peers() {
        let row = replicas.to_string();
        let peers: Vec<_> = accesses
            .iter()
            .map(|access| (row.as_str(), access.name()))
            .collect();
        run.rounds(part, &peers, &mut |turn, at| {
            let bytes = u64::from(turn.mib()) << 20;
            let copies = u64::try_from(replicas).unwrap_or(1);
            let disk = WatchedDisk::mount(&turn.dir, HostedFileSystem::Ext4, copies * bytes)?;
            with_source(&disk, (accesses[at], replicas), turn.options, |source| {
                let mut once = |bytes| stream_round(&disk, source, 1, (bytes, copies));
                warm_round(turn, (row.as_str(), bytes), &mut once)
            })
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::one_disk::streams::FILES;
    use super::*;
    use crate::runner::page::ExperimentPage;
    use crate::runner::record::{PeerFigures, PeerSample, Record};

    #[test]
    fn the_page_has_shares_of_the_native_disk() {
        let of = |row, peer, mbs| {
            PeerSample::first(("", row, peer, "write"), PeerFigures::of([("mbs", mbs)]))
        };
        let samples = vec![of("1", FILES, 90.0), of("3", "stock", 45.0)];
        let record = Record {
            samples,
            ..Record::default()
        };
        let text = ExperimentPage::new(&NATIVE.shown, &record).body(2);
        assert!(text.contains("| 3 | stock | 45.0 | 50 % |"), "{text}");
        assert_eq!(
            peers()[0].1[0],
            StreamAccess::Files,
            "what others are shares of"
        );
    }
}
