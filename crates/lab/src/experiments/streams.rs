//! What several streams at once leave of a disk's rate, on ext4 and XFS (the thesis' Figure 3.9):
//! 1, 2 and 4 writers, as many readers, and one reader of what was written beside others; first as
//! files, then through nodes of either kind.

use std::fmt::Write as _;

use serde::Serialize;

use super::one_disk::findings::{DiskFinding, MARKS, percent};
use super::one_disk::streams::{StreamAccess, with_source};
use super::one_disk::{DiskExperiment, DiskRun, StreamRound, WarmRounds, WatchedDisk};
use hayloft_testkit::error::Result;
use hayloft_testkit::modelled::HostedFileSystem;

/// The experiment.
pub const STREAMS: DiskExperiment = DiskExperiment {
    name: "streams",
    about: "what 1, 2 and 4 streams leave of a disk's rate, on ext4 and XFS",
    mib: 256,
    carry_out,
};

/// Streams at once.
const COUNTS: [usize; 3] = [1, 2, 4];
/// Streams of most.
const COUNT_MAX: u64 = 4;
/// File systems, in this order.
const FILE_SYSTEMS: [HostedFileSystem; 2] = [HostedFileSystem::Ext4, HostedFileSystem::Xfs];

/// Per cent of the single stream that four left, through stock HDFS on a real disk: writers,
/// readers, one reader of what four wrote. The thesis gives them in words beside its figure.
const THESIS: [(&str, [u32; 3]); 3] = [
    ("ext4, Linux 2.6.31", [92, 58, 92]),
    ("XFS, Linux 2.6.31", [100, 57, 94]),
    ("UFS2, FreeBSD 7.2", [53, 79, 58]),
];

/// So many streams on one file system by one way.
#[derive(Clone, Debug, Serialize)]
struct StreamsRow {
    file_system: HostedFileSystem,
    access: StreamAccess,
    streams: usize,
    measured: WarmRounds<StreamRound>,
}

/// The last result is what one stream of the same kind gave.
type RowFindings = (DiskFinding, DiskFinding, Option<DiskFinding>);

impl StreamsRow {
    fn findings(&self) -> RowFindings {
        let (write, read) = DiskFinding::both(&self.measured);
        let alone = DiskFinding::of(&self.measured, |round| round.alone);
        (write, read, alone)
    }

    /// Whether `other` is the single stream beside this row.
    fn is_single_of(&self, other: &Self) -> bool {
        other.streams == 1 && (other.file_system, other.access) == (self.file_system, self.access)
    }
}

fn carry_out(run: &mut DiskRun<'_>) -> Result<String> {
    let each = run.stream_bytes();
    let file_systems = run.available(FILE_SYSTEMS)?;
    let mut rows = Vec::new();
    let mut text = page(run, &rows);
    let ways = std::iter::once(StreamAccess::Files).chain(StreamAccess::NODES);
    let ways: Vec<StreamAccess> = ways.collect();
    for file_system in file_systems {
        for access in ways.iter().copied() {
            let disk = WatchedDisk::mount(run.work, file_system, COUNT_MAX * each)?;
            with_source(&disk, (access, 1), run.options, |source| {
                for streams in COUNTS {
                    let name = (file_system.name(), access.name());
                    (run.tell)(&format!("{}, {}: {streams} streams", name.0, name.1));
                    let mut once = || StreamRound::run(&disk, source, streams, (each, 1));
                    let measured =
                        WarmRounds::run(run.options.rounds, StreamRound::rates, &mut once)?;
                    rows.push(StreamsRow {
                        file_system,
                        access,
                        streams,
                        measured,
                    });
                    text = page(run, &rows);
                    run.save(&text, &rows)?;
                }
                Ok(())
            })?;
        }
    }
    Ok(text)
}

fn page(run: &DiskRun<'_>, rows: &[StreamsRow]) -> String {
    let (options, command) = (run.options, run.command);
    let mut text = format!(
        "# Several streams on one disk\n\nCommand: `{command}`\n\n\
         One modelled hard disk (not a real one), streams of {} MiB, one replica, {} rounds once \
         it is warm; median (lowest to highest). MB/s of all streams together, until all that was \
         written is on the disk; caches are dropped before reading. `of one`: of the single stream \
         by the same way on the same file system. The last reader reads alone what one of the \
         writers wrote beside the others.\n\n{}\n",
        options.mib,
        options.rounds,
        StreamAccess::EXPLAINED,
    );
    run.say_left_out(&mut text);
    text.push_str(
        "\n| | | streams | write MB/s | of one | read MB/s | of one | read alone MB/s | of one \
         | runs on the disk, MiB | processors | late |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let single = rows.iter().find(|other| row.is_single_of(other));
        table_line(&mut text, row, single.unwrap_or(row));
    }
    let _ = writeln!(
        text,
        "\nRuns and processors: writing/reading/reading alone. {MARKS}\n\n\
         ## The thesis (Figure 3.9, a real disk, stock HDFS)\n\n\
         Per cent of one stream that four leave.\n\n\
         | | writers | readers | one reads what four wrote |\n|---|---|---|---|"
    );
    for (name, [write, read, alone]) in THESIS {
        let _ = writeln!(text, "| {name} | {write} | {read} | {alone} |");
    }
    text
}

fn table_line(text: &mut String, row: &StreamsRow, single: &StreamsRow) {
    let (write, read, alone) = row.findings();
    let (one_write, one_read, _) = single.findings();
    let three = |of: fn(&DiskFinding) -> String| {
        let all = [Some(&write), Some(&read), alone.as_ref()];
        let all: Vec<String> = all.into_iter().flatten().map(of).collect();
        all.join("/")
    };
    let _ = writeln!(
        text,
        "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} % | {} |",
        row.file_system.name(),
        row.access.name(),
        row.streams,
        write.cell(),
        percent(write.mbs.0, one_write.mbs.0),
        read.cell(),
        percent(read.mbs.0, one_read.mbs.0),
        alone.map_or("-".into(), |alone| alone.cell()),
        alone.map_or("-".into(), |alone| percent(alone.mbs.0, one_read.mbs.0)),
        three(|finding| format!("{:.1}", finding.run_mib)),
        three(|finding| format!("{:.0}", finding.processors * 100.0)),
        write.late + read.late + alone.map_or(0, |alone| alone.late),
    );
}

#[cfg(test)]
mod tests {
    use super::super::one_disk::findings::tests::{round, warm};
    use super::super::one_disk::tests::page_of;
    use super::*;

    #[test]
    fn streams_are_shares_of_the_single_one_by_the_same_way() {
        let row = |file_system, access, streams, round| StreamsRow {
            file_system,
            access,
            streams,
            measured: warm(vec![round]),
        };
        let (ext4, xfs) = (HostedFileSystem::Ext4, HostedFileSystem::Xfs);
        let rows = [
            row(ext4, StreamAccess::Files, 1, round(10.0, 10.0, None)),
            row(ext4, StreamAccess::Stock, 1, round(80.0, 100.0, None)),
            row(xfs, StreamAccess::Stock, 1, round(20.0, 20.0, None)),
            row(ext4, StreamAccess::Stock, 4, round(60.0, 58.0, Some(90.0))),
        ];
        let text = page_of(page, &["zfs: it is not there"], &rows);
        let wanted = "| ext4 | stock | 4 | 60.0 (60.0 to 60.0) | 75 % | 58.0 (58.0 to 58.0) | 58 % \
                      | 90.0 (90.0 to 90.0) | 90 % | 3.0/3.0/3.0 | 50/50/50 % | 0 |";
        assert!(text.contains(wanted), "{text}");
        assert!(text.contains("Left out: zfs: it is not there."), "{text}");
        assert!(text.contains("| - | - | 3.0/3.0 |"), "one stream is alone");
    }

    #[test]
    fn there_is_room_for_the_most_streams() {
        let most = COUNTS.into_iter().max().and_then(|n| u64::try_from(n).ok());
        assert_eq!(most, Some(COUNT_MAX));
    }
}
