//! Files in, values out: the rules of Hadoop's configuration, end to end.

use std::path::Path;
use std::time::Duration;

use super::*;

mod files;
mod table;

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }
    fn write(self, name: &str, body: &str) -> Self {
        self.raw(
            name,
            &format!(
                "<?xml version=\"1.0\"?>\n<configuration \
            xmlns:xi=\"http://www.w3.org/2001/XInclude\">\n{body}\n</configuration>\n"
            ),
        )
    }
    fn raw(self, name: &str, text: &str) -> Self {
        std::fs::write(self.0.path().join(name), text)
            .expect("the temporary directory is writable");
        self
    }
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn load(&self) -> Result<Configuration, ConfigError> {
        Configuration::load(self.path(), &[])
    }
    fn error(&self) -> String {
        self.load()
            .expect_err("this configuration is wrong")
            .to_string()
    }
}

fn property(name: &str, value: &str) -> String {
    format!("<property><name>{name}</name><value>{value}</value></property>")
}

fn final_property(name: &str, value: &str) -> String {
    format!("<property><name>{name}</name><value>{value}</value><final>true</final></property>")
}

#[test]
fn defaults_files_and_command_line_in_that_order() {
    let dir = Dir::new()
        .write(
            "core-site.xml",
            &(property("dfs.heartbeat.interval", "5") + &property("hadoop.tmp.dir", "/data/tmp")),
        )
        .write("hdfs-site.xml", &property("dfs.heartbeat.interval", "7s"));
    let config = dir.load().unwrap();
    assert_eq!(
        config.get(&keys::HEARTBEAT_INTERVAL),
        Duration::from_secs(7)
    );
    assert_eq!(
        config.origin("dfs.heartbeat.interval").to_string(),
        format!("{}:3", dir.path().join("hdfs-site.xml").display())
    );
    assert_eq!(
        config.get(&keys::DATA_DIRS)[0].to_string(),
        "[DISK]/data/tmp/dfs/data"
    );
    assert_eq!(config.origin("dfs.datanode.data.dir"), Origin::Default);
    let forced =
        Configuration::load(dir.path(), &[("dfs.heartbeat.interval".into(), "9".into())]).unwrap();
    assert_eq!(
        forced.get(&keys::HEARTBEAT_INTERVAL),
        Duration::from_secs(9)
    );
    assert_eq!(forced.origin("dfs.heartbeat.interval"), Origin::CommandLine);
}

#[test]
fn hayloft_site_comes_last() {
    let dir = Dir::new()
        .write(
            "hdfs-site.xml",
            &property("dfs.datanode.handler.count", "3"),
        )
        .write(
            "hayloft-site.xml",
            &property("dfs.datanode.handler.count", "4"),
        );
    assert_eq!(dir.load().unwrap().get(&keys::HANDLER_COUNT), 4);
}

#[test]
fn final_values_stand_against_later_files_but_not_the_command_line() {
    let dir = Dir::new()
        .write(
            "core-site.xml",
            &(final_property("dfs.datanode.handler.count", "1")
                + &property("dfs.datanode.handler.count", "2")),
        )
        .write(
            "hdfs-site.xml",
            &property("dfs.datanode.handler.count", "3"),
        );
    let config = dir.load().unwrap();
    assert_eq!(config.get(&keys::HANDLER_COUNT), 1);
    let dir = Dir::new()
        .write(
            "core-site.xml",
            &final_property("dfs.datanode.handler.count", "1"),
        )
        .write(
            "hdfs-site.xml",
            &property("dfs.datanode.handler.count", "3"),
        );
    let config = dir.load().unwrap();
    assert_eq!(config.get(&keys::HANDLER_COUNT), 1);
    assert!(
        config.warnings().iter().any(|line| line.contains("final")),
        "{:?}",
        config.warnings()
    );
    let forced = Configuration::load(
        dir.path(),
        &[("dfs.datanode.handler.count".into(), "9".into())],
    )
    .unwrap();
    assert_eq!(forced.get(&keys::HANDLER_COUNT), 9);
}

#[test]
fn deprecated_names_mean_the_present_ones() {
    let dir = Dir::new().write(
        "hdfs-site.xml",
        &property("dfs.datanode.max.xcievers", "17"),
    );
    let config = dir.load().unwrap();
    assert_eq!(config.get(&keys::MAX_TRANSFER_THREADS), 17);
    assert!(config.warnings()[0].contains("use dfs.datanode.max.transfer.threads"));
}

#[test]
fn substitution_reaches_other_keys_and_reports_what_is_missing() {
    let dir = Dir::new().write(
        "hdfs-site.xml",
        &(property("my.base", "/b")
            + &property(
                "dfs.datanode.data.dir",
                "[SSD]${my.base}/1,${env.HAYLOFT_NOT_SET:-/c}/2",
            )),
    );
    let shown: Vec<String> = dir
        .load()
        .unwrap()
        .get(&keys::DATA_DIRS)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(shown, ["[SSD]/b/1", "[DISK]/c/2"]);
    let dir = Dir::new().write(
        "hdfs-site.xml",
        &property("dfs.datanode.data.dir", "${never.set.this}/1"),
    );
    assert!(
        dir.error()
            .contains("${never.set.this}, which nothing sets"),
        "{}",
        dir.error()
    );
    let dir = Dir::new().write(
        "hdfs-site.xml",
        &(property("dfs.datanode.hostname", "${x}") + &property("x", "${dfs.datanode.hostname}")),
    );
    assert!(dir.error().contains("20 substitutions"), "{}", dir.error());
}

#[test]
fn bad_values_name_key_value_place_and_what_is_allowed() {
    let dir = Dir::new().write(
        "hdfs-site.xml",
        &(String::from("\n\n") + &property("dfs.heartbeat.interval", "soon")),
    );
    let error = dir.error();
    for part in [
        "dfs.heartbeat.interval",
        "'soon'",
        "hdfs-site.xml:5",
        "ns, us, ms, s, m, h or d",
    ] {
        assert!(error.contains(part), "{error}");
    }
    for (name, value) in [
        ("dfs.datanode.handler.count", "0"),
        ("dfs.datanode.handler.count", "many"),
        ("dfs.datanode.address", "nowhere"),
        ("dfs.datanode.data.dir", "[FLOPPY]/a"),
        ("dfs.datanode.failed.volumes.tolerated", "-2"),
        ("dfs.datanode.data.dir.perm", "rwx"),
        ("dfs.datanode.du.reserved", "10GB"),
        ("dfs.datanode.du.reserved./data", "10GB"),
        ("dfs.datanode.synconclose", "yes"),
    ] {
        let error = Dir::new()
            .write("hdfs-site.xml", &property(name, value))
            .error();
        assert!(
            error.contains(name) && error.contains(value) && error.contains("must be"),
            "{error}"
        );
    }
}

#[test]
fn properties_without_a_value_say_nothing() {
    let dir = Dir::new().write(
        "hdfs-site.xml",
        &(property("dfs.datanode.handler.count", "")
            + "<property><name>dfs.heartbeat.interval</name></property>"),
    );
    let config = dir.load().unwrap();
    assert_eq!(config.get(&keys::HANDLER_COUNT), 10);
    for name in ["dfs.datanode.handler.count", "dfs.heartbeat.interval"] {
        assert_eq!(config.origin(name), Origin::Default);
    }
}

/// As Apache's node, which leaves the refusal to the NameNode.
#[test]
fn a_replication_of_nothing_is_no_reason_not_to_start() {
    let dir = Dir::new().write("hdfs-site.xml", &property("dfs.replication", "0"));
    let config = dir
        .load()
        .expect("a configuration that Apache's node takes");
    assert_eq!(config.get(&keys::REPLICATION), 0);
}

#[test]
fn reports_show_no_secrets() {
    let config = Configuration::from_properties([
        ("my.password", "hunter2"),
        ("my.url", "x?p=${my.password}"),
        ("my.user", "ann"),
        (keys::DATANODE_HOSTNAME.name(), "${my.password}"),
    ]);
    let config = config.expect("valid");
    let text = config.to_text();
    let shown = |line: &str| text.contains(line);
    assert!(
        shown("my.user = ann") && shown("my.password = <redacted>"),
        "{text}"
    );
    let settings = config.settings();
    let values: String = settings.into_iter().map(|of| of.value).collect();
    assert!(!(text + &values).contains("hunter2"));
}

#[test]
fn per_volume_keys() {
    let config = Configuration::from_properties([
        ("dfs.datanode.data.dir", "[SSD]/a,[SSD]/b,/c"),
        ("dfs.datanode.du.reserved", "1k"),
        ("dfs.datanode.du.reserved.ssd", "2k"),
        ("dfs.datanode.du.reserved./b", "3k"),
        ("dfs.datanode.du.reserved.pct", "7"),
        ("hayloft.io.engine./c", "null"),
    ])
    .unwrap();
    let dirs = config.get(&keys::DATA_DIRS);
    let reserved: Vec<u64> = dirs
        .iter()
        .map(|dir| config.reserved_for(dir).bytes)
        .collect();
    assert_eq!(reserved, [2048, 3072, 1024]);
    assert_eq!(config.reserved_for(&dirs[0]).percent, 7);
    assert_eq!(config.engine_for(&dirs[0]), "auto");
    assert_eq!(config.engine_for(&dirs[2]), "null");
}

#[test]
fn reconfiguration_applies_what_may_change_and_shows_the_rest() {
    let dir = Dir::new().write(
        "hdfs-site.xml",
        &property("dfs.datanode.handler.count", "1"),
    );
    let shared = SharedConfig::new(dir.load().unwrap());
    assert_eq!(shared.changes().unwrap(), []);
    let dir = dir.write(
        "hdfs-site.xml",
        &(property("dfs.datanode.handler.count", "2")
            + &property("dfs.datanode.max.transfer.threads", "9")),
    );
    let other_handle = shared.clone();
    let changes = shared.reload().unwrap();
    assert_eq!(changes.len(), 2);
    assert!(!changes[0].reconfigurable && changes[1].reconfigurable);
    assert_eq!(changes[1].old, None);
    assert_eq!(other_handle.get(&keys::MAX_TRANSFER_THREADS), 9);
    assert_eq!(other_handle.get(&keys::HANDLER_COUNT), 1);
    assert!(
        shared
            .apply(&changes[0])
            .unwrap_err()
            .to_string()
            .contains("restart")
    );
    let dir = dir.write("hdfs-site.xml", "");
    shared.reload().unwrap();
    assert_eq!(shared.get(&keys::MAX_TRANSFER_THREADS), 4096);
    let dir = dir.write(
        "hdfs-site.xml",
        &property("dfs.datanode.max.transfer.threads", "none"),
    );
    assert!(shared.reload().is_err(), "{}", dir.path().display());
    assert_eq!(shared.get(&keys::MAX_TRANSFER_THREADS), 4096);
}

#[test]
fn name_services_can_be_refreshed_without_the_rest() {
    let address = |ns: &str| property(&format!("dfs.namenode.rpc-address.{ns}"), "h:1");
    let one = property("dfs.nameservices", "a") + &address("a");
    let dir = Dir::new().write("hdfs-site.xml", &one);
    let shared = SharedConfig::new(dir.load().unwrap());
    let two = property("dfs.nameservices", "a,b") + &address("a") + &address("b");
    let dir = dir.write(
        "hdfs-site.xml",
        &(two + &property("dfs.datanode.handler.count", "99")),
    );
    let config = shared.refresh_namenodes().unwrap();
    assert_eq!(namenodes(&config).unwrap().len(), 2);
    assert_eq!(shared.get(&keys::HANDLER_COUNT), 10);
    let _dir = dir.write(
        "hdfs-site.xml",
        &(property("dfs.nameservices", "a,c") + &address("a")),
    );
    assert!(shared.refresh_namenodes().is_err());
    assert_eq!(namenodes(&shared.current()).unwrap().len(), 2);
}
