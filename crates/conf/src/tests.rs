//! Files in, values out: the rules of Hadoop's configuration, end to end.

use std::path::Path;
use std::time::Duration;

use super::*;

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
        &property("dfs.datanode.data.dir", "${nobody.set.this}/1"),
    );
    assert!(
        dir.error()
            .contains("${nobody.set.this}, which nothing sets"),
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
    assert!(
        !config.is_set("dfs.datanode.handler.count") && !config.is_set("dfs.heartbeat.interval")
    );
}

#[test]
fn xinclude_relative_nested_and_with_fallback() {
    let dir = Dir::new()
        .write("hdfs-site.xml", &(property("dfs.datanode.handler.count", "1") + "<xi:include \
            href=\"more.xml\"/>" + &property("dfs.heartbeat.interval", "4")))
        .write("more.xml", &("<xi:include \
            href=\"absent.xml\"><xi:fallback>".to_owned() + &property("dfs.datanode.handler.count", "2") + "</xi:fallback></xi:include><xi:include href=\"hdfs-ignored.xml\"><xi:fallback/></xi:include>"));
    let config = dir.load().unwrap();
    assert_eq!(config.get(&keys::HANDLER_COUNT), 2);
    assert!(
        config
            .origin("dfs.datanode.handler.count")
            .to_string()
            .contains("more.xml")
    );
    assert_eq!(
        config.get(&keys::HEARTBEAT_INTERVAL),
        Duration::from_secs(4)
    );
    let satisfied = Dir::new()
        .write("a.xml", &property("dfs.datanode.handler.count", "5"))
        .write(
            "hdfs-site.xml",
            &("<xi:include href=\"a.xml\"><xi:fallback>".to_owned()
                + &property("dfs.datanode.handler.count", "6")
                + "</xi:fallback></xi:include>"),
        );
    assert_eq!(satisfied.load().unwrap().get(&keys::HANDLER_COUNT), 5);
}

#[test]
fn includes_that_cannot_be_followed_are_errors() {
    let missing = Dir::new()
        .write("hdfs-site.xml", "\n<xi:include href=\"absent.xml\"/>")
        .error();
    assert!(
        missing.contains("hdfs-site.xml:4") && missing.contains("absent.xml"),
        "{missing}"
    );
    let itself = Dir::new()
        .write("hdfs-site.xml", "<xi:include href=\"hdfs-site.xml\"/>")
        .error();
    assert!(itself.contains("16 deep"), "{itself}");
    let twice = "<xi:include href=\"hdfs-site.xml\"><xi:fallback/></xi:include>".repeat(40);
    assert!(Dir::new().write("hdfs-site.xml", &twice).load().is_err());
    let remote = Dir::new()
        .write("hdfs-site.xml", "<xi:include href=\"http://x/y\"/>")
        .error();
    assert!(remote.contains("only files"), "{remote}");
}

#[test]
fn xml_details() {
    let dir = Dir::new().raw(
        "hdfs-site.xml",
        "<?xml version='1.0'?>\n<!DOCTYPE configuration>\n<!-- c --><configuration>\n\
         <property name='dfs.datanode.handler.count' value='6' final='true'/>\n\
         <property><description>d <b>x</b></description><name> dfs.datanode.hostname\n</name>\
         <value>a<!-- c -->&amp;&#98;<![CDATA[<c>]]></value></property>\n\
         <configuration><property><name>dfs.heartbeat.interval</name><value> 8 \
         </value></property></configuration>\n\
         </configuration>",
    );
    let config = dir.load().unwrap();
    assert_eq!(config.get(&keys::HANDLER_COUNT), 6);
    assert_eq!(
        config.get(&keys::DATANODE_HOSTNAME).as_deref(),
        Some("a&b<c>")
    );
    assert_eq!(
        config.get(&keys::HEARTBEAT_INTERVAL),
        Duration::from_secs(8)
    );
}

#[test]
fn malformed_files_name_file_and_line() {
    for (text, line) in [
        ("<configuration>\n<property>\n</configuration>", 3),
        ("<configuration>\n<property>", 2),
        ("<html/>", 1),
        ("", 1),
        (
            "<configuration>\n<property><value>1</value></property></configuration>",
            2,
        ),
        (
            "<configuration>\n\n<property><name>a</name><value>&xxe;</value></property></configuration>",
            3,
        ),
    ] {
        let error = Dir::new().raw("hdfs-site.xml", text).error();
        assert!(
            error.contains(&format!("hdfs-site.xml:{line}:")),
            "{text:?} -> {error}"
        );
    }
    let deep = "<configuration>".repeat(1000);
    assert!(
        Dir::new()
            .raw("hdfs-site.xml", &deep)
            .error()
            .contains("deep")
    );
    assert!(Dir::new().error().contains("HADOOP_CONF_DIR"));
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

#[test]
fn the_table_is_sound() {
    let names: Vec<&str> = keys::all().map(AnyKey::name).collect();
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), names.len(), "a key is declared twice");
    for key in keys::all() {
        assert!(
            key.doc().ends_with('.'),
            "{} has no sentence for a doc",
            key.name()
        );
        if !key.default().contains("${") {
            assert!(
                key.empty_is_value() || key.parse(key.default()).is_ok(),
                "{}: bad default",
                key.name()
            );
        }
    }
    assert_eq!(
        keys::reconfigurable().count(),
        25,
        "Apache's DataNode lists 25 reconfigurable keys"
    );
    for entry in super::unsupported::all() {
        assert!(
            !entry.ignored.is_empty() && !entry.ignored.ends_with('.'),
            "{}",
            entry.name
        );
    }
}

/// Sources below a folder.
fn sources(dir: &Path, text: &mut String) {
    for entry in std::fs::read_dir(dir).expect("the sources are there") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(&path).expect("readable"));
        }
    }
}

/// `NAME: Type = ("key"` of every declaration in the table's sources.
fn declared(text: &str) -> Vec<(String, String)> {
    let text = text.replace("(\n        \"", "(\"");
    let starts = text.split("\n    ").filter(|part| part.contains(" = ("));
    let pairs = starts.filter_map(|part| {
        let (ident, rest) = part.split_once(": ")?;
        let key = rest.split('"').nth(1)?;
        let is_ident = ident.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        is_ident.then(|| (ident.to_owned(), key.to_owned()))
    });
    pairs.collect()
}

#[test]
fn every_key_has_an_effect_or_says_that_it_has_none() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut table, mut used) = (String::new(), String::new());
    sources(&root.join("src/keys"), &mut table);
    sources(&root.join("../node/src"), &mut used);
    for file in ["namenodes.rs", "configuration.rs", "review.rs"] {
        used.push_str(&std::fs::read_to_string(root.join("src").join(file)).expect("readable"));
    }
    let declared = declared(&table);
    assert_eq!(
        declared.len(),
        keys::all().count(),
        "this test misreads the table"
    );
    let without: Vec<&str> = unsupported::all().map(|entry| entry.name).collect();
    // Read by `${...}` of other keys only.
    let by_reference = ["hadoop.tmp.dir"];
    for (ident, key) in declared {
        let is_used = used
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .any(|word| word == ident);
        let is_excused = without.contains(&key.as_str()) || by_reference.contains(&key.as_str());
        assert!(
            is_used || is_excused,
            "{key} is in the table and nothing reads {ident}: use it, or list it as unsupported"
        );
        assert!(
            !(is_used && is_excused),
            "{key} is used and listed as unsupported"
        );
    }
}

proptest::proptest! {
    /// Whatever an operator types is a value or an error, never a panic, and never grows without
    /// end.
    #[test]
    fn any_text_is_a_value_or_an_error(text in "\\PC{0,40}|[-0-9a-z${}:.,/\\[\\] ]{0,40}") {
        for key in keys::all() {
            let _ = key.parse(&text);
        }
        if let Ok(config) = Configuration::from_properties([("x", text.as_str()), ("y", "${x}${x}")]) {
            let _ = config.text("y");
        }
    }

    /// Any bytes in a file are properties or an error with a place.
    #[test]
    fn any_file_is_read_or_refused(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200), tags in "(<(/?(configuration|property|name|value|final|include|fallback)|!--|!\\[CDATA\\[|&#?)[a-z >=\"]{0,8}){0,20}") {
        let dir = Dir::new();
        for text in [&bytes, tags.as_bytes(), &[b"<configuration>", tags.as_bytes()].concat()] {
            std::fs::write(dir.path().join("hdfs-site.xml"), text).expect("written");
            if let Err(error) = dir.load() {
                proptest::prop_assert!(error.to_string().contains("hdfs-site.xml") || error.to_string().contains("core-site"));
            }
        }
    }
}
