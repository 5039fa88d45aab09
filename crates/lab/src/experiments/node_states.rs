//! A split cluster in two racks, and the states that a NameNode is told of its nodes: those of the
//! last rack may be in maintenance.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::describe::{DataNodeSpec, Description, DiskSpec, HostSpec, Rack};
use crate::net;
use crate::runner::options::ExperimentOptions;
use hayloft_testkit::error::{Result, TestkitError};

/// Storage hosts of a rack.
pub(super) const STORAGE_HOSTS: usize = 2;
/// Racks; the second one goes down.
const RACKS: usize = 2;
/// Most compute hosts.
const WORKERS_MAX: usize = 4;
/// One in each rack: the stock policy keeps two replicas in two racks.
pub(super) const REPLICAS: u16 = 2;
/// Size of a node's disk in memory, MiB.
const DISK_MIB: u32 = 64;

/// Compute hosts.
pub(super) fn workers(options: &ExperimentOptions) -> usize {
    options.largest.min(WORKERS_MAX)
}

/// The name of one.
pub(super) fn worker(at: usize) -> String {
    format!("w{at}")
}

/// Two racks, each with storage hosts and half of the compute hosts. The client is in the last one,
/// whose nodes go down: it is told to read there first. The NameNode takes the nodes' states from
/// `states`.
pub(super) fn described(kind: &str, options: &ExperimentOptions, states: &Path) -> Description {
    let node = DataNodeSpec {
        kind: kind.into(),
        disks: vec![DiskSpec {
            memory: true,
            size_mib: DISK_MIB,
            ..DiskSpec::default()
        }],
        ..DataNodeSpec::default()
    };
    let storage = |rack: usize, at: usize| HostSpec {
        name: format!("s{}", rack * STORAGE_HOSTS + at),
        nodes: vec![node.clone()],
        ..HostSpec::default()
    };
    let rack = |rack: usize| {
        let storage = (0..STORAGE_HOSTS).map(|at| storage(rack, at));
        let compute = (rack..workers(options)).step_by(RACKS);
        let compute = compute.map(|at| HostSpec::client(worker(at)));
        Rack {
            name: rack_name(rack),
            hosts: storage.chain(compute).collect(),
        }
    };
    let mut racks: Vec<Rack> = (0..RACKS).map(rack).collect();
    racks[RACKS - 1].hosts.push(HostSpec::client("c0"));
    let package = "org.apache.hadoop.hdfs.server.blockmanagement";
    let own = [
        ("dfs.replication", REPLICAS.to_string()),
        ("dfs.blocksize", "1048576".into()),
        // Stock nodes keep a GiB free by default, which such a disk does not have.
        (
            "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space",
            "0".into(),
        ),
        ("dfs.namenode.maintenance.replication.min", "1".into()),
        ("dfs.namenode.decommission.interval", "1".into()),
    ];
    // What the states are read with.
    let forced = [
        (
            "dfs.namenode.hosts.provider.classname",
            format!("{package}.CombinedHostFileManager"),
        ),
        ("dfs.hosts", states.display().to_string()),
    ];
    let owned = |(key, value): (&str, String)| (key.to_owned(), value);
    let mut conf: BTreeMap<String, String> = own.map(owned).into();
    conf.extend(options.conf.clone());
    conf.extend(forced.map(owned));
    Description {
        racks,
        conf,
        ..Description::one_rack("power", "stock", 1000, Vec::new())
    }
}

fn rack_name(rack: usize) -> String {
    format!("r{}", rack + 1)
}

/// What the NameNode reads of its nodes: those of the last rack are in maintenance `until` then, in
/// milliseconds since 1970; `None`: all are in service.
pub(super) fn states(described: &Description, until: Option<u64>) -> Value {
    let down = rack_name(RACKS - 1);
    let hosts = described.hosts().enumerate();
    let with_nodes = hosts.filter(|(_, (_, host))| !host.nodes.is_empty());
    let state = |(position, (rack, _)): (usize, (&Rack, &HostSpec))| {
        let address = net::address(Some(position)).to_string();
        match until {
            Some(until) if rack.name == down => json!({
                "hostName": address,
                "adminState": "IN_MAINTENANCE",
                "maintenanceExpireTimeInMS": until,
            }),
            _ => json!({"hostName": address}),
        }
    };
    with_nodes.map(state).collect()
}

/// Writes what [`states`] says.
pub(super) fn write(path: &Path, states: &Value) -> Result<()> {
    std::fs::write(path, states.to_string()).map_err(TestkitError::file("writing", path))
}

/// Nodes that are in maintenance, dead ones included, and those that are about to be; `None` where
/// the NameNode does not count them.
pub(super) fn in_maintenance(bean: &Value) -> Option<(u64, u64)> {
    let count = |key: &str| bean[key].as_u64();
    let live = count("NumInMaintenanceLiveDataNodes")?;
    let dead = count("NumInMaintenanceDeadDataNodes")?;
    Some((live + dead, count("NumEnteringMaintenanceDataNodes")?))
}

#[cfg(test)]
mod tests {
    use super::super::testbeds::tests::is_right;
    use super::*;

    fn two_racks() -> Description {
        described(
            "hayloft",
            &ExperimentOptions::default(),
            Path::new("/lab/states.json"),
        )
    }

    #[test]
    fn only_storage_hosts_of_the_last_rack_are_in_maintenance() {
        let described = two_racks();
        is_right(&described);
        assert_eq!(described.conf["dfs.hosts"], "/lab/states.json");
        // s0, s1, w0, w2 and s2, s3, w1, w3, c0 have the addresses 1 to 9.
        let in_service = |last: u8| json!({"hostName": format!("10.77.0.{last}")});
        let down = |last: u8| {
            json!({
                "hostName": format!("10.77.0.{last}"), "adminState": "IN_MAINTENANCE",
                "maintenanceExpireTimeInMS": 7,
            })
        };
        let wanted = json!([in_service(1), in_service(2), down(5), down(6)]);
        assert_eq!(states(&described, Some(7)), wanted);
        let all = json!([1, 2, 5, 6].map(in_service));
        assert_eq!(states(&described, None), all);
    }

    #[test]
    fn the_client_s_own_rack_goes_down() {
        let described = two_racks();
        let mut clients = described.hosts().filter(|(_, host)| host.name == "c0");
        let (rack, _) = clients.next().expect("there is a client");
        assert_eq!(rack.name, rack_name(RACKS - 1));
    }

    #[test]
    fn given_properties_are_over_its_own_but_for_the_states() {
        let mut options = ExperimentOptions::default();
        for key in ["dfs.blocksize", "dfs.hosts"] {
            options.conf.insert(key.into(), "7".into());
        }
        let described = described("hayloft", &options, Path::new("/lab/states.json"));
        assert_eq!(described.conf["dfs.blocksize"], "7");
        assert_eq!(described.conf["dfs.hosts"], "/lab/states.json");
    }

    #[test]
    fn states_are_counted_with_those_of_dead_nodes() {
        let bean = json!({
            "NumInMaintenanceLiveDataNodes": 1, "NumInMaintenanceDeadDataNodes": 1,
            "NumEnteringMaintenanceDataNodes": 3,
        });
        assert_eq!(in_maintenance(&bean), Some((2, 3)));
        assert_eq!(in_maintenance(&json!({})), None);
    }
}
