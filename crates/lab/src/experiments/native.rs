//! What HDFS leaves of a disk's rate, with one replica and with three (the thesis' Table 1.1): one
//! stream straight to the file system of a modelled disk, then one client through nodes on it.
//!
//! With three replicas three nodes share the disk, so it gets three streams at once as each disk of
//! a cluster does in which every client writes. The rate of writing counts all copies.

use std::fmt::Write as _;

use serde::Serialize;

use super::one_disk::findings::{DiskFinding, MARKS, percent, thesis_table};
use super::one_disk::streams::{StreamAccess, with_source};
use super::one_disk::{DiskExperiment, DiskRun, StreamRound, WarmRounds, WatchedDisk};
use hayloft_testkit::error::Result;
use hayloft_testkit::modelled::HostedFileSystem;

/// The experiment.
pub const NATIVE: DiskExperiment = DiskExperiment {
    name: "native",
    about: "what HDFS leaves of a disk's own rate, with one replica and with three",
    mib: 1024,
    carry_out,
};

/// MB/s of the thesis, writing and reading, on a real disk.
const THESIS: [(&str, f64, f64); 3] = [
    ("native", 95.0, 105.0),
    ("HDFS", 68.0, 72.0),
    ("HDFS, 3 replicas, all copies", 36.0, 54.0),
];
/// Replicas of most.
const REPLICAS_MAX: u64 = 3;

/// One way to the disk.
#[derive(Clone, Debug, Serialize)]
struct NativeRow {
    access: StreamAccess,
    replicas: usize,
    measured: WarmRounds<StreamRound>,
}

fn arrangements() -> Vec<(StreamAccess, usize)> {
    let nodes = StreamAccess::NODES.into_iter();
    let nodes = nodes.flat_map(|access| [(access, 1), (access, 3)]);
    std::iter::once((StreamAccess::Files, 1))
        .chain(nodes)
        .collect()
}

fn carry_out(run: &mut DiskRun<'_>) -> Result<String> {
    let bytes = run.stream_bytes();
    let mut rows = Vec::new();
    let mut text = String::new();
    for (access, replicas) in arrangements() {
        (run.tell)(&format!("{}, {replicas} replicas", access.name()));
        let disk = WatchedDisk::mount(run.work, HostedFileSystem::Ext4, REPLICAS_MAX * bytes)?;
        let copies = u64::try_from(replicas).unwrap_or(1);
        let measured = with_source(&disk, (access, replicas), run.options, |source| {
            let mut once = || StreamRound::run(&disk, source, 1, (bytes, copies));
            WarmRounds::run(run.options.rounds, StreamRound::rates, &mut once)
        })?;
        rows.push(NativeRow {
            access,
            replicas,
            measured,
        });
        text = page(run, &rows);
        run.save(&text, &rows)?;
    }
    Ok(text)
}

fn page(run: &DiskRun<'_>, rows: &[NativeRow]) -> String {
    let (options, command) = (run.options, run.command);
    let mut text = format!(
        "# HDFS against its disk\n\nCommand: `{command}`\n\n\
         One modelled hard disk (not a real one) with ext4, one stream of {} MiB, {} rounds once \
         it is warm; median (lowest to highest). The clock stops when all that was written is on \
         the disk; caches are dropped before reading. With three replicas three nodes share the \
         disk: writing counts all copies, reading takes one copy of each block.\n\n{}\n\n\
         | | replicas | write MB/s | of native | read MB/s | of native | disk busy, write/read | \
         runs on the disk, MiB | processors | late |\n|---|---|---|---|---|---|---|---|---|---|\n",
        options.mib,
        options.rounds,
        StreamAccess::EXPLAINED,
    );
    let native = rows.first().map(|row| DiskFinding::both(&row.measured));
    let (native_write, native_read) = native.unwrap_or_default();
    for row in rows {
        let (write, read) = DiskFinding::both(&row.measured);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {:.0}/{:.0} % | {:.1}/{:.1} | {:.0}/{:.0} % | {} |",
            row.access.name(),
            row.replicas,
            write.cell(),
            percent(write.mbs.0, native_write.mbs.0),
            read.cell(),
            percent(read.mbs.0, native_read.mbs.0),
            write.busy * 100.0,
            read.busy * 100.0,
            write.run_mib,
            read.run_mib,
            write.processors * 100.0,
            read.processors * 100.0,
            write.late + read.late,
        );
    }
    let _ = writeln!(text, "\n{MARKS}");
    text + &thesis_table("Table 1.1, a real disk", "native", &THESIS)
}

#[cfg(test)]
mod tests {
    use super::super::one_disk::findings::tests::{round, warm};
    use super::super::one_disk::tests::page_of;
    use super::*;

    #[test]
    fn every_node_has_one_and_three_replicas_beside_the_native_disk() {
        let all = arrangements();
        assert_eq!(all.len(), 7);
        assert_eq!(
            all[0],
            (StreamAccess::Files, 1),
            "what others are shares of"
        );
        assert!(all.contains(&(StreamAccess::Hayloft, 3)));
    }

    #[test]
    fn the_page_has_shares_of_the_native_disk_beside_the_thesis() {
        let row = |access, replicas, write, read| NativeRow {
            access,
            replicas,
            measured: warm(vec![round(write, read, None)]),
        };
        let rows = [
            row(StreamAccess::Files, 1, 90.0, 100.0),
            row(StreamAccess::Stock, 3, 45.0, 75.0),
        ];
        let text = page_of(page, &[], &rows);
        let wanted = "| stock | 3 | 45.0 (45.0 to 45.0) | 50 % | 75.0 (75.0 to 75.0) | 75 % |";
        assert!(text.contains(wanted), "{text}");
        let thesis = "| HDFS, 3 replicas, all copies | 36 | 38 % | 54 | 51 % |";
        assert!(text.contains(thesis), "{text}");
    }
}
