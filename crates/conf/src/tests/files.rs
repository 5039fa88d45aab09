//! XML files and includes.

use std::time::Duration;

use super::{Dir, property};
use crate::*;

#[test]
fn xinclude_relative_nested_and_with_fallback() {
    let handlers = |count| property("dfs.datanode.handler.count", count);
    let including = handlers("1")
        + "<xi:include href=\"more.xml\"/>"
        + &property("dfs.heartbeat.interval", "4");
    let fallbacks = "<xi:include href=\"absent.xml\"><xi:fallback>".to_owned()
        + &handlers("2")
        + "</xi:fallback></xi:include>"
        + "<xi:include href=\"hdfs-ignored.xml\"><xi:fallback/></xi:include>";
    let dir = Dir::new()
        .write("hdfs-site.xml", &including)
        .write("more.xml", &fallbacks);
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
            "<configuration>\n\n<property><name>a</name><value>&xxe;</value></property>\
             </configuration>",
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

/// What files of a configuration are made of, in any order.
const TAGS: &str = "(<(/?(configuration|property|name|value|final|include|fallback)\
    |!--|!\\[CDATA\\[|&#?)[a-z >=\"]{0,8}){0,20}";

proptest::proptest! {
    /// Any bytes in a file are properties or an error with a place.
    #[test]
    fn any_file_is_read_or_refused(
        bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
        tags in TAGS,
    ) {
        let dir = Dir::new();
        for text in [&bytes, tags.as_bytes(), &[b"<configuration>", tags.as_bytes()].concat()] {
            std::fs::write(dir.path().join("hdfs-site.xml"), text).expect("written");
            if let Err(error) = dir.load() {
                let text = error.to_string();
                let has_place = text.contains("hdfs-site.xml") || text.contains("core-site");
                proptest::prop_assert!(has_place, "{text}");
            }
        }
    }
}
