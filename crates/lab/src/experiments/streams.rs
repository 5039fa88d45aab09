//! What several streams at once leave of a disk's rate, on ext4 and XFS (the thesis' Figure 3.9):
//! 1, 2 and 4 writers, as many readers, and one reader of what was written beside others; first as
//! files, then through nodes of either kind.

use super::one_disk::streams::{StreamAccess, THESIS_BLOCK_MIB, UNSCHEDULED, with_source};
use super::one_disk::{self, WatchedDisk, available, stream_round, warm_round};
use crate::runner::options::ExperimentOptions;
use crate::runner::table::{Bar, Shown, WantedRatio, pick};
use crate::runner::{Experiment, OURS, Run};
use hayloft_testkit::error::Result;
use hayloft_testkit::modelled::HostedFileSystem;

/// The experiment.
pub const STREAMS: Experiment = Experiment {
    name: "streams",
    question: "what 1, 2 and 4 streams leave of a disk's rate, on ext4 and XFS",
    paper: "the thesis' Figure 3.9",
    options: || ExperimentOptions {
        mib: 4096,
        rounds: 5,
        block_mib: THESIS_BLOCK_MIB,
        ..one_disk::options()
    },
    about: |options| {
        format!(
            "One modelled hard disk (not a real one), streams of {} MiB, one replica. MB/s of all \
             streams together, until all that was written is on the disk; caches are dropped \
             before reading. `of one`: of the single stream by the same way on the same file \
             system. The last reader reads alone what one of the writers wrote beside the others. \
             {} `{UNSCHEDULED}`: told that the disk is flash, so requests go to it as they come \
             and no stream has a turn; the quantum stays.",
            options.mib,
            StreamAccess::explained(options)
        )
    },
    measure: carry_out,
    shown: Shown {
        title: "What streams leave of a disk",
        tables: include_str!("tables/streams.txt"),
        wants,
        paper: "Figure 3.9, a real disk, stock HDFS: per cent of one stream that four leave.\n\n\
                | | writers | readers | one reads what four wrote |\n|---|---|---|---|\n\
                | ext4, Linux 2.6.31 | 92 | 58 | 92 |\n\
                | XFS, Linux 2.6.31 | 100 | 57 | 94 |\n\
                | UFS2, FreeBSD 7.2 | 53 | 79 | 58 |",
        ..Shown::NOTHING
    },
    ..Experiment::OF_RATES
};

/// Bar: several writers as a share of one.
const BAR: f64 = 0.95;

/// Turns keep a disk's rate for several writers, and give them no less than what no turns do.
fn wants() -> Vec<WantedRatio> {
    let mut wants = Vec::new();
    for on in FILE_SYSTEMS.map(HostedFileSystem::name) {
        let of = |streams: usize, peer| pick(on, &streams.to_string(), peer, "write", "mbs");
        for streams in &COUNTS[1..] {
            let mut want = |text: String, over, least| {
                wants.push(WantedRatio {
                    text,
                    of: of(*streams, OURS),
                    over,
                    bar: Bar::Least(least),
                });
            };
            want(format!("{on}: {streams} writers to one"), of(1, OURS), BAR);
            let text = format!("{on}: {streams} writers, turns to none");
            want(text, of(*streams, UNSCHEDULED), 1.0);
        }
    }
    wants
}

/// Streams at once.
const COUNTS: [usize; 3] = [1, 2, 4];
/// Streams of most.
const COUNT_MAX: u64 = 4;
/// File systems, in this order.
const FILE_SYSTEMS: [HostedFileSystem; 2] = [HostedFileSystem::Ext4, HostedFileSystem::Xfs];

fn carry_out(run: &mut Run<'_>, _part: &str) -> Result<()> {
    let mut ways = StreamAccess::all();
    ways.push(StreamAccess::Unscheduled);
    let first = COUNTS[0].to_string();
    for file_system in available(run, FILE_SYSTEMS)? {
        let peers: Vec<_> = ways
            .iter()
            .map(|access| (first.as_str(), access.name()))
            .collect();
        run.rounds(file_system.name(), &peers, &mut |turn, at| {
            let each = u64::from(turn.mib()) << 20;
            let disk = WatchedDisk::mount(&turn.dir, file_system, COUNT_MAX * each)?;
            with_source(&disk, (ways[at], 1), turn.options, |source| {
                COUNTS.into_iter().try_for_each(|streams| {
                    let mut once = |each| stream_round(&disk, source, streams, (each, 1));
                    warm_round(turn, (streams.to_string().as_str(), each), &mut once)
                })
            })
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::page::ExperimentPage;
    use crate::runner::record::{PeerFigures, PeerSample, Record};

    #[test]
    fn streams_are_shares_of_the_single_one_by_the_same_way() {
        let of = |on, row, mbs| {
            let figures = PeerFigures::of([("mbs", mbs), ("disk_busy", 0.9), ("cpu", 0.5)]);
            PeerSample::first((on, row, "stock", "write"), figures)
        };
        let samples = vec![
            of("ext4", "1", 80.0),
            of("xfs", "1", 20.0),
            of("ext4", "4", 60.0),
        ];
        let record = Record {
            samples,
            ..Record::default()
        };
        let text = ExperimentPage::new(&STREAMS.shown, &record).body(2);
        let wanted = "| ext4 | 4 | stock | 60.0 | 75 % | 90 % | 50 % | disk |";
        assert!(text.contains(wanted), "{text}");
        let most = COUNTS.into_iter().max().and_then(|n| u64::try_from(n).ok());
        assert_eq!(most, Some(COUNT_MAX), "there is room for the most streams");
    }
}
