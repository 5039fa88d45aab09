//! Configuration of YARN's processes and of jobs.

use super::YarnSite;
use crate::error::{Result, TestkitError};
use crate::hadoop::{Hadoop, SMALL_JVM_FLAGS};
use crate::hadoop_conf::Conf;
use crate::ports;
use crate::where_processes_run::Place;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;

/// Memory of a container by YARN's count, MiB; it decides how many there are.
const CONTAINER_MIB: u32 = 512;
/// Heap of a task and of an ApplicationMaster, MiB.
const TASK_HEAP_MIB: u32 = 200;
const MASTER_HEAP_MIB: u32 = 256;
/// How often NodeManagers and ApplicationMasters ask for work, and clients for a job's state, ms:
/// where it matters only that jobs end. Hadoop's defaults are 1000, of the last one 5000.
const SHORT_INTERVALS: [(&str, u32); 4] = [
    (
        "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms",
        250,
    ),
    ("yarn.app.mapreduce.am.scheduler.heartbeat.interval-ms", 250),
    ("mapreduce.client.progressmonitor.pollinterval", 200),
    ("mapreduce.client.completion.pollinterval", 200),
];
/// Keys of the CapacityScheduler, which has a file of its own.
const CAPACITY: &str = "yarn.scheduler.capacity.";

/// Ports of the ResourceManager.
pub(super) struct ManagerPorts {
    client: u16,
    scheduler: u16,
    tracker: u16,
    admin: u16,
    pub web: u16,
}

impl ManagerPorts {
    pub fn choose() -> Result<Self> {
        Ok(Self {
            client: ports::free()?,
            scheduler: ports::free()?,
            tracker: ports::free()?,
            admin: ports::free()?,
            web: ports::free()?,
        })
    }
}

/// Where histories of ended jobs are, in the default file system: Hadoop gives a directory of
/// another one the default one's authority.
pub(super) const HISTORIES: &str = "/yarn/history";
const STAGING: &str = "/yarn/staging";

/// What all processes of YARN are told.
pub(super) fn common(
    conf: &Conf,
    hadoop: &Hadoop,
    site: &YarnSite,
    ports: &ManagerPorts,
) -> Result<Conf> {
    let at = |port| site.manager.at(port);
    let classes = hadoop.class_path(&site.dir.join("job-conf"));
    conf.write_dir(&site.dir.join("job-conf"))?;
    let mut all = conf.clone();
    all.set("yarn.resourcemanager.hostname", site.manager.address())
        .set("yarn.resourcemanager.address", at(ports.client))
        .set(
            "yarn.resourcemanager.scheduler.address",
            at(ports.scheduler),
        )
        .set(
            "yarn.resourcemanager.resource-tracker.address",
            at(ports.tracker),
        )
        .set("yarn.resourcemanager.admin.address", at(ports.admin))
        .set("yarn.resourcemanager.webapp.address", at(ports.web))
        .set("yarn.nm.liveness-monitor.expiry-interval-ms", 20_000)
        .set("yarn.scheduler.minimum-allocation-mb", CONTAINER_MIB)
        .set("yarn.scheduler.maximum-allocation-mb", CONTAINER_MIB)
        .set("yarn.application.classpath", classes.replace(':', ","));
    if !site.stock_intervals {
        for (key, millis) in SHORT_INTERVALS {
            all.set(key, millis);
        }
    }
    Ok(all)
}

/// Writes the names of all hosts, and returns the JVM's option to use them and no name server,
/// which knows none of them. The machine's own name stays known.
pub(super) fn write_hosts_file(site: &YarnSite) -> Result<String> {
    let named = site
        .workers
        .iter()
        .map(|worker| (worker.place.address(), &worker.name));
    let mut text: String = named
        .map(|(address, name)| format!("{address} {name}\n"))
        .collect();
    let manager = site.manager.address();
    if manager != Ipv4Addr::LOCALHOST {
        let _ = writeln!(text, "{manager} {manager}");
    }
    let machine = rustix::system::uname();
    let machine = machine.nodename().to_string_lossy();
    let _ = writeln!(text, "127.0.0.1 127.0.0.1 localhost {machine}");
    let path = site.dir.join("hosts");
    std::fs::write(&path, text).map_err(TestkitError::file("writing", &path))?;
    Ok(format!("-Djdk.net.hosts.file={}", path.display()))
}

/// Writes the ResourceManager's directory: Hadoop's default scheduler with its one default queue,
/// and what the configuration says of that scheduler.
pub(super) fn write_manager(common: &Conf, dir: &Path) -> Result<()> {
    common.write_dir(dir)?;
    let mut queues = Conf::new()
        .with(format!("{CAPACITY}root.queues"), "default")
        .with(format!("{CAPACITY}root.default.capacity"), 100)
        .with(format!("{CAPACITY}maximum-am-resource-percent"), "0.5");
    for (key, value) in common.iter().filter(|(key, _)| key.starts_with(CAPACITY)) {
        queues.set(key, value);
    }
    let path = dir.join("capacity-scheduler.xml");
    std::fs::write(&path, queues.to_xml()).map_err(TestkitError::file("writing", path))
}

/// Writes a NodeManager's configuration; its own files are below `dir`.
pub(super) fn write_worker(
    common: &Conf,
    place: &Place,
    dir: &Path,
    containers: u32,
) -> Result<()> {
    let below = |name: &str| dir.join(name).display().to_string();
    let prefix = "yarn.nodemanager";
    let mut conf = common.clone();
    let mut set = |key: &str, value: String| {
        conf.set(format!("{prefix}.{key}"), value);
    };
    set("address", place.at(0).to_string());
    set("localizer.address", place.at(0).to_string());
    set("collector-service.address", place.at(0).to_string());
    set("webapp.address", place.at(0).to_string());
    set("local-dirs", below("local"));
    set("log-dirs", below("containers"));
    set("aux-services", "mapreduce_shuffle".into());
    set(
        "resource.memory-mb",
        (containers * CONTAINER_MIB).to_string(),
    );
    // Memory decides alone: the default scheduler looks at nothing else.
    set("resource.cpu-vcores", containers.to_string());
    set("vmem-check-enabled", "false".into());
    set("pmem-check-enabled", "false".into());
    set("disk-health-checker.enable", "false".into());
    // It looks once all the same, and takes no container where the disk is nine tenths full.
    let most = "disk-health-checker.max-disk-utilization-per-disk-percentage";
    set(most, "100".into());
    set("sleep-delay-before-sigkill.ms", "250".into());
    conf.set("mapreduce.shuffle.port", 0);
    conf.write_dir(&dir.join("conf"))
}

/// What a job's client is told, over the file system's configuration that it has.
pub(super) fn of_jobs(common: &Conf, hosts: &str) -> Value {
    let java = |heap: u32| {
        let flags = SMALL_JVM_FLAGS.join(" ");
        format!("{flags} -Xmx{heap}m -XX:-UsePerfData {hosts}")
    };
    let classes = common.get("yarn.application.classpath").unwrap_or_default();
    let mut conf = Map::new();
    let for_jobs = |key: &str| key.starts_with("yarn.") || key.starts_with("mapreduce.client.");
    for (key, value) in common.iter().filter(|(key, _)| for_jobs(key)) {
        conf.insert(key.into(), value.into());
    }
    let own = json!({
        "mapreduce.framework.name": "yarn",
        "mapreduce.application.classpath": classes,
        "yarn.app.mapreduce.am.staging-dir": STAGING,
        "yarn.app.mapreduce.am.resource.mb": CONTAINER_MIB,
        "yarn.app.mapreduce.am.command-opts": java(MASTER_HEAP_MIB),
        "mapreduce.map.memory.mb": CONTAINER_MIB,
        "mapreduce.reduce.memory.mb": CONTAINER_MIB,
        "mapreduce.map.java.opts": java(TASK_HEAP_MIB),
        "mapreduce.reduce.java.opts": java(TASK_HEAP_MIB),
        "mapreduce.task.io.sort.mb": 16,
        "mapreduce.am.max-attempts": 1,
        // Hadoop's 10 are more than there are nodes: the NameNode would copy while jobs run.
        "mapreduce.client.submit.file.replication": 2,
        // Nothing serves histories: they are read from this directory.
        "mapreduce.jobhistory.address": "",
        "mapreduce.jobhistory.intermediate-done-dir": HISTORIES,
        "mapreduce.jobhistory.jhist.format": "json",
        // A second attempt of a slow task would read and write what others do not.
        "mapreduce.map.speculative": false,
        "mapreduce.reduce.speculative": false,
    });
    if let Value::Object(own) = own {
        conf.extend(own);
    }
    json!({ "conf": conf })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(dir: &Path, stock_intervals: bool) -> YarnSite {
        YarnSite {
            dir: dir.to_owned(),
            manager: Place::local(),
            workers: Vec::new(),
            containers: 1,
            stock_intervals,
        }
    }

    /// What daemons and jobs are told where the file system's configuration says this.
    fn told(given: &Conf, stock_intervals: bool) -> (Conf, Value) {
        let dir = tempfile::tempdir().expect("a directory");
        let lib = dir.path().join("share/hadoop/common");
        std::fs::create_dir_all(&lib).expect("made");
        for jar in ["hadoop-common-3.jar", "hadoop-hdfs-3.jar"] {
            std::fs::write(lib.join(jar), "").expect("written");
        }
        let hadoop = Hadoop::locate_in(Some(dir.path())).expect("a home");
        let ports = ManagerPorts::choose().expect("free ports");
        let all = common(given, &hadoop, &site(dir.path(), stock_intervals), &ports);
        let all = all.expect("written");
        let jobs = of_jobs(&all, "");
        (all, jobs)
    }

    #[test]
    fn where_intervals_are_stock_only_what_is_given_sets_them() {
        let (short, jobs) = told(&Conf::new(), false);
        for (key, millis) in SHORT_INTERVALS {
            assert_eq!(short.get(key), Some(millis.to_string().as_str()));
            assert_eq!(jobs["conf"][key], json!(millis.to_string()));
        }
        let beat = SHORT_INTERVALS[0].0;
        let given = Conf::new().with(beat, 300);
        for (conf, wanted) in [(Conf::new(), None), (given, Some("300"))] {
            let (stock, jobs) = told(&conf, true);
            for (key, _) in SHORT_INTERVALS {
                let wanted = wanted.filter(|_| key == beat);
                assert_eq!(stock.get(key), wanted, "{key}");
                assert_eq!(jobs["conf"][key].as_str(), wanted, "{key}");
            }
        }
    }

    #[test]
    fn the_scheduler_s_own_file_has_its_keys() {
        let dir = tempfile::tempdir().expect("a directory");
        let delay = format!("{CAPACITY}node-locality-delay");
        let conf = Conf::new().with(&delay, 0).with("yarn.other", 1);
        write_manager(&conf, dir.path()).expect("written");
        let path = dir.path().join("capacity-scheduler.xml");
        let text = std::fs::read_to_string(path).expect("there");
        assert!(
            text.contains(&delay) && text.contains("root.queues"),
            "{text}"
        );
        assert!(!text.contains("yarn.other"), "{text}");
    }
}
