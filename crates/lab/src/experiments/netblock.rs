//! A disk on another host: reached as a network block device under a stock DataNode beside the
//! client, or by HDFS' own protocol from a DataNode beside the disk (the thesis' Table 7.1 and
//! Figure 7.2; the cloud paper's iSCSI volumes). One client, one disk, the same link and the same
//! disk.

use hayloft_bench::fair::stock::Stock;

use super::testbeds::{about, bring_up, each_kind_in, measure, one_rack, slow_disks, storage_host};
use crate::describe::{Description, HostSpec};
use crate::runner::options::ExperimentOptions;
use crate::runner::record::PeerFigures;
use crate::runner::table::Shown;
use crate::runner::{Experiment, Run};
use crate::up::Testbed;
use crate::workload::WorkloadPhase;
use hayloft_testkit::error::{Result, TestkitError};

/// The experiment.
pub const NETBLOCK: Experiment = Experiment {
    name: "netblock",
    question: "a disk over the network, by blocks or by HDFS' protocol",
    paper: "the thesis' Table 7.1 and Figure 7.2; the cloud paper's iSCSI volumes",
    options: slow_disks,
    about: |options| {
        let more = format!(
            "One client, one disk, one replica. Block device: nbdkit serves the disk without a \
             cache of its own, nbdfuse, a loop device and ext4 on the client's host; tuned: with \
             4 MiB of read-ahead. Processor seconds are those of the processes on each side \
             (client and node, or client, node and nbdfuse; node or nbdkit), without the kernel's \
             own threads (a loop device has such) and without the process that models the disk; \
             of a round that moves less than 4 GiB they are not told. {}",
            Stock::EXPLAINED
        );
        about(options, &more)
    },
    measure: carry_out,
    shown: Shown {
        title: "A disk on another host",
        tables: include_str!("tables/netblock.txt"),
        paper: "Table 7.1, real disks:\n\n\
                | | write MB/s | of local | read MB/s | of local |\n|---|---|---|---|---|\n\
                | local | 67.3 | 100 % | 70.1 | 100 % |\n\
                | split | 67.8 | 101 % | 68.7 | 98 % |\n\
                | network block device (ATA over Ethernet) | 16.8 | 25 % | 40.5 | 58 % |\n\
                | the same, tuned | 46.7 | 69 % | 57.6 | 82 % |",
        ..Shown::NOTHING
    },
    ..Experiment::OF_RATES
};

/// The client's host, and the one that has the disk in all arrangements but the local one.
const COMPUTE: &str = "c0";
const STORAGE: &str = "s0";
/// What a kernel reads ahead of a device whose administrator tuned it, KiB; its default is 128.
const TUNED_READ_AHEAD_KIB: u32 = 4096;

/// MiB that tell processor time: the kernel counts it in ticks of 10 ms.
const CPU_MIB: f64 = hayloft_testkit::machine::CPU_MIB;

/// One way to a disk.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    /// The node runs on the client's host.
    node_at_client: bool,
    /// The disk is there, too.
    disk_at_client: bool,
    read_ahead_kib: Option<u32>,
}

const LOCAL: &str = "local";
const WAYS: [Way; 4] = [
    way(LOCAL, true, true),
    way("split", false, false),
    way("network block device", true, false),
    Way {
        read_ahead_kib: Some(TUNED_READ_AHEAD_KIB),
        ..way("network block device, tuned", true, false)
    },
];

const fn way(name: &'static str, node_at_client: bool, disk_at_client: bool) -> Way {
    Way {
        name,
        node_at_client,
        disk_at_client,
        read_ahead_kib: None,
    }
}

fn described(way: &Way, kind: &str, options: &ExperimentOptions) -> Description {
    let options = ExperimentOptions {
        kind: kind.into(),
        ..options.clone()
    };
    let mut node = storage_host(0, false, &options).nodes.remove(0);
    let mapped = way.node_at_client && !way.disk_at_client;
    node.disks[0].on = mapped.then(|| STORAGE.into());
    let mut client = HostSpec::client(COMPUTE);
    let mut storage = HostSpec {
        name: STORAGE.into(),
        ..HostSpec::default()
    };
    if way.node_at_client {
        client.nodes.push(node);
    } else {
        storage.nodes.push(node);
    }
    one_rack(&options, "stock", vec![client, storage], "own")
}

fn carry_out(run: &mut Run<'_>, part: &str) -> Result<()> {
    let names: Vec<&str> = WAYS.iter().map(|way| way.name).collect();
    each_kind_in(run, part, &names, &mut |turn, way, kind| {
        let way = &WAYS[way];
        let mut described = described(way, kind, turn.options);
        described.workload.mib = turn.mib();
        let testbed = bring_up(turn, described)?;
        if let Some(kib) = way.read_ahead_kib {
            read_ahead(&testbed, kib)?;
        }
        for phase in measure(turn, way.name, &testbed)? {
            turn.add(phase.what, cpu_s_gib(&phase));
        }
        Ok(())
    })
}

/// Processor seconds a GiB on either side; nothing where too little moved.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn cpu_s_gib(phase: &WorkloadPhase) -> PeerFigures {
    let mib = phase.bytes as f64 / f64::from(1 << 20);
    let of = |host: usize| {
        let seconds = phase.host_cpu_s.get(host).copied();
        seconds
            .filter(|_| mib >= CPU_MIB)
            .map(|seconds| seconds / (mib / 1024.0))
    };
    PeerFigures::default()
        .with_some("compute_s_gib", of(0))
        .with_some("storage_s_gib", of(1))
}

fn read_ahead(testbed: &Testbed, kib: u32) -> Result<()> {
    let disks = testbed.nodes().iter().flat_map(|node| &node.disks);
    for device in disks.filter_map(|disk| disk.device.as_ref()) {
        let path = format!("/sys/block/{device}/queue/read_ahead_kb");
        std::fs::write(&path, kib.to_string()).map_err(TestkitError::file("setting", path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testbeds::tests::is_right;
    use super::*;
    use crate::phase::tests::phase;

    #[test]
    fn every_way_is_a_right_description() {
        for way in &WAYS {
            let described = described(way, "hayloft", &slow_disks());
            is_right(&described);
            let names: Vec<&str> = described.hosts().map(|(_, h)| h.name.as_str()).collect();
            assert_eq!(names, [COMPUTE, STORAGE], "the order that seconds rely on");
            let mapped = way.name.starts_with("network block device");
            assert_eq!(described.mapped(), mapped, "{}", way.name);
        }
    }

    #[test]
    fn processor_seconds_need_4_gib() {
        let moved = |mib: u64| WorkloadPhase {
            bytes: mib << 20,
            host_cpu_s: vec![3.0, 6.0],
            ..phase(0.5, 0.0, 0.0)
        };
        let enough = cpu_s_gib(&moved(4096));
        assert_eq!(enough.get("compute_s_gib"), Some(0.75));
        assert_eq!(enough.get("storage_s_gib"), Some(1.5));
        assert_eq!(cpu_s_gib(&moved(4095)), PeerFigures::default());
    }
}
