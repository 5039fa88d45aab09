//! A disk on another host: reached as a network block device under a stock DataNode beside the
//! client, or by HDFS' own protocol from a DataNode beside the disk (the thesis' Table 7.1 and
//! Figure 7.2; the cloud paper's iSCSI volumes). One client, one disk, the same link and the same
//! disk.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use super::scaling::slug;
use super::{ExperimentOptions, in_words, marks};
use crate::describe::{DataNodeSpec, Description, DiskSpec, HostSpec, WorkloadSpec};
use crate::report::{self, spread};
use crate::up::Testbed;
use crate::workload::{self, WorkloadOutcome, WorkloadPhase};
use hayloft_testkit::error::{Result, TestkitError};

/// Its name.
pub const NAME: &str = "netblock";
/// What it shows.
pub(super) const ABOUT: &str = "a disk over the network, by blocks or by HDFS' protocol";

/// The client's host, and the one that has the disk in all arrangements but the local one.
const COMPUTE: &str = "c0";
const STORAGE: &str = "s0";
/// What a kernel reads ahead of a device whose administrator tuned it, KiB; its default is 128.
const TUNED_READ_AHEAD_KIB: u32 = 4096;

/// One way to a disk.
#[derive(Clone, Copy, Debug)]
struct Arrangement {
    name: &'static str,
    kind: &'static str,
    /// The node runs on the client's host.
    node_at_client: bool,
    /// The disk is there, too.
    disk_at_client: bool,
    read_ahead_kib: Option<u32>,
}

const ARRANGEMENTS: [Arrangement; 5] = [
    Arrangement {
        name: "local, stock",
        kind: "apache",
        node_at_client: true,
        disk_at_client: true,
        read_ahead_kib: None,
    },
    Arrangement {
        name: "split, stock",
        kind: "apache",
        node_at_client: false,
        disk_at_client: false,
        read_ahead_kib: None,
    },
    Arrangement {
        name: "split, Hayloft",
        kind: "hayloft",
        node_at_client: false,
        disk_at_client: false,
        read_ahead_kib: None,
    },
    Arrangement {
        name: "network block device, stock",
        kind: "apache",
        node_at_client: true,
        disk_at_client: false,
        read_ahead_kib: None,
    },
    Arrangement {
        name: "network block device with 4 MiB of read-ahead, stock",
        kind: "apache",
        node_at_client: true,
        disk_at_client: false,
        read_ahead_kib: Some(TUNED_READ_AHEAD_KIB),
    },
];

/// MB/s of the thesis' Table 7.1, writing and reading, on real disks.
const THESIS: [(&str, f64, f64); 4] = [
    ("local", 67.3, 70.1),
    ("split", 67.8, 68.7),
    ("network block device (ATA over Ethernet)", 16.8, 40.5),
    ("the same, tuned", 46.7, 57.6),
];

/// What an arrangement gave; medians with the lowest and the highest.
#[derive(Clone, Debug, Serialize)]
pub struct NetblockFinding {
    /// Which.
    pub arrangement: String,
    /// Writing.
    pub write: Side,
    /// Reading.
    pub read: Side,
    /// Whether client and node were warm.
    pub warm: Option<bool>,
}

/// One direction.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Side {
    /// MB/s.
    pub mbs: (f64, f64, f64),
    /// Processor seconds a GiB of the processes on the client's host; `None` where all rounds
    /// together moved less than 4 GiB.
    pub compute_s_gib: Option<(f64, f64, f64)>,
    /// The same on the disk's host.
    pub storage_s_gib: Option<(f64, f64, f64)>,
    /// Share of the time in which the disk served a request, by its own account, 0 to 1.
    pub disk_busy: f64,
    /// Share of the time in which client and node could have gone on and had no processor, 0 to 1.
    pub waited: f64,
    /// Requests that the disk answered late.
    pub late: u64,
}

impl Side {
    fn of(outcome: &WorkloadOutcome, what: &str) -> Self {
        let all: Vec<&WorkloadPhase> = report::phases(outcome, what).collect();
        let of = |f: &dyn Fn(&WorkloadPhase) -> f64| spread(all.iter().map(|p| f(p)).collect());
        let busy = |p: &WorkloadPhase| p.model.iter().map(|disk| disk.utilisation).sum();
        Self {
            mbs: of(&|p| p.mbs),
            compute_s_gib: marks::cpu_s_gib(&all, 0),
            storage_s_gib: marks::cpu_s_gib(&all, 1),
            disk_busy: of(&busy).0,
            waited: of(&WorkloadPhase::waited).0,
            late: all
                .iter()
                .flat_map(|p| &p.model)
                .map(|disk| disk.late)
                .sum(),
        }
    }
}

fn described(arrangement: &Arrangement, options: &ExperimentOptions) -> Description {
    let disk = DiskSpec {
        modelled: true,
        read_mbs: options.disk_mbs.0,
        write_mbs: options.disk_mbs.1,
        on: (arrangement.node_at_client && !arrangement.disk_at_client).then(|| STORAGE.into()),
        ..DiskSpec::default()
    };
    let node = DataNodeSpec {
        kind: arrangement.kind.into(),
        disks: vec![disk],
        ..DataNodeSpec::default()
    };
    let mut client = HostSpec::client(COMPUTE);
    let mut storage = HostSpec {
        name: STORAGE.into(),
        ..HostSpec::default()
    };
    if arrangement.node_at_client {
        client.nodes.push(node);
    } else {
        storage.nodes.push(node);
    }
    let mut conf = options.conf.clone();
    // For both kinds: what is acknowledged as written is on the disk, not in a page cache.
    conf.insert("dfs.datanode.synconclose".into(), "true".into());
    Description {
        conf,
        workload: WorkloadSpec {
            mib: options.mib,
            block_mib: 16,
            rounds: options.rounds,
            ..WorkloadSpec::default()
        },
        ..Description::one_rack(
            "netblock",
            "stock",
            options.link_mbit,
            vec![client, storage],
        )
    }
}

/// Carries out every arrangement and writes page and raw data to `out` after each.
///
/// # Errors
/// When a testbed does not come up or a client fails; what was measured before is in `out`.
pub fn run(
    options: &ExperimentOptions,
    command: &str,
    (work, out): (&Path, &Path),
    tell: &mut dyn FnMut(&str),
) -> Result<String> {
    let mut findings = Vec::new();
    let mut text = String::new();
    for (at, arrangement) in ARRANGEMENTS.iter().enumerate() {
        tell(&format!(
            "{} of {}: {}",
            at + 1,
            ARRANGEMENTS.len(),
            arrangement.name
        ));
        let described = described(arrangement, options);
        let slug = slug(arrangement.name);
        let dir = work.join(&slug);
        crate::up::down(&described.name, &dir)?;
        let testbed = Testbed::up(described.clone(), &dir, false, tell)?;
        if let Some(kib) = arrangement.read_ahead_kib {
            read_ahead(&testbed, kib)?;
        }
        // A JVM that has not compiled its code yet is not what is compared.
        let outcome = workload::run_warm(&testbed, tell)?;
        drop(testbed);
        findings.push(NetblockFinding {
            arrangement: arrangement.name.into(),
            write: Side::of(&outcome, "write"),
            read: Side::of(&outcome, "read"),
            warm: outcome.warm,
        });
        report::write(&described, &outcome, command, &out.join(&slug))?;
        text = page(options, command, &findings);
        report::save_page(out, &text, "findings.json", &findings)?;
    }
    Ok(text)
}

fn read_ahead(testbed: &Testbed, kib: u32) -> Result<()> {
    let disks = testbed.nodes().iter().flat_map(|node| &node.disks);
    for device in disks.filter_map(|disk| disk.device.as_ref()) {
        let path = format!("/sys/block/{device}/queue/read_ahead_kb");
        std::fs::write(&path, kib.to_string()).map_err(TestkitError::file("setting", path))?;
    }
    Ok(())
}

fn page(options: &ExperimentOptions, command: &str, findings: &[NetblockFinding]) -> String {
    let mut text = format!(
        "# Network block device against Split\n\nCommand: `{command}`\n\n\
         One client, one modelled hard disk (not a real one) of {} MB/s reading and {} MB/s \
         writing with ext4, links of {} Mbit/s, \
         {} MiB in blocks of 16 MiB, one replica, {} rounds; median \
         (lowest to highest). `dfs.datanode.synconclose=true` for \
         every node, {} for Hayloft; caches are dropped before reading. Block device: nbdkit \
         serves the disk without a cache of its \
         own, nbdfuse, a loop device and ext4 on the client's host.\n\n\
         Processor seconds are those of the processes on each side (client and node, or client, \
         node and nbdfuse; node or \
         nbdkit), without the kernel's own threads (a loop device has such) and without the \
         process that models the disk. A dash: all rounds together moved less than 4 GiB, too \
         little to tell them.\n\n",
        options.disk_mbs.0,
        options.disk_mbs.1,
        options.link_mbit,
        options.mib,
        options.rounds,
        options.listed_conf(),
    );
    for (what, of) in [
        (
            "Writing",
            (|f: &NetblockFinding| f.write.clone()) as fn(&NetblockFinding) -> Side,
        ),
        ("Reading", |f| f.read.clone()),
    ] {
        let _ = writeln!(
            text,
            "## {what}\n\n| | MB/s | of local | CPU s/GiB, client's side | CPU s/GiB, disk's side \
                | disk busy | waited for a processor | late |\n\
             |---|---|---|---|---|---|---|---|"
        );
        let local = findings.first().map_or(0.0, |f| of(f).mbs.0);
        for finding in findings {
            let side = of(finding);
            let _ = writeln!(
                text,
                "| {}{} | {} | {:.0} % | {} | {} | {:.0} % | {:.0} % | {} |",
                finding.arrangement,
                marks::signs(side.waited, finding.warm),
                in_words(side.mbs),
                side.mbs.0 / local * 100.0,
                side.compute_s_gib.map_or("-".into(), in_words),
                side.storage_s_gib.map_or("-".into(), in_words),
                side.disk_busy * 100.0,
                side.waited * 100.0,
                side.late,
            );
        }
        text.push('\n');
    }
    text.push_str(marks::legend(true).trim_start());
    text.push_str(
        "\n## The thesis (Table 7.1, real disks)\n\n| | write MB/s | of local | read MB/s | of \
            local |\n|---|---|---|---|---|\n",
    );
    let (_, write, read) = THESIS[0];
    for (name, w, r) in THESIS {
        let _ = writeln!(
            text,
            "| {name} | {w} | {:.0} % | {r} | {:.0} % |",
            w / write * 100.0,
            r / read * 100.0
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::scaling::tests::is_right;
    use super::*;

    #[test]
    fn every_arrangement_is_a_right_description() {
        for arrangement in &ARRANGEMENTS {
            let described = described(arrangement, &ExperimentOptions::default());
            is_right(&described);
            let names: Vec<&str> = described.hosts().map(|(_, h)| h.name.as_str()).collect();
            assert_eq!(names, [COMPUTE, STORAGE], "the order that Side relies on");
            let mapped = arrangement.name.starts_with("network block device");
            assert_eq!(described.mapped(), mapped, "{}", arrangement.name);
        }
    }

    #[test]
    fn the_page_marks_what_cannot_be_believed_and_leaves_out_what_cannot_be_told() {
        let side = |cpu: Option<f64>, waited: f64| Side {
            mbs: (12.0, 11.0, 13.0),
            compute_s_gib: cpu.map(|s| (s, s, s)),
            waited,
            ..Side::default()
        };
        let finding = NetblockFinding {
            arrangement: ARRANGEMENTS[0].name.into(),
            write: side(None, 0.1),
            read: side(Some(3.0), 0.3),
            warm: Some(false),
        };
        let text = page(&ExperimentOptions::default(), "c", &[finding]);
        let wrote = r"| local, stock \* | 12.0 (11.0 to 13.0) | 100 % | - | - |";
        assert!(text.contains(wrote), "{text}");
        let read = r"| local, stock † \* | 12.0 (11.0 to 13.0) | 100 % | 3.0 (3.0 to 3.0) | - |";
        assert!(text.contains(read), "{text}");
    }
}
