//! Configurations of virtual nodes.

use super::*;
use crate::SharedConfig;

fn config(properties: &[(&str, &str)]) -> Configuration {
    Configuration::from_properties(properties.iter().copied()).expect("valid properties")
}

fn nodes(properties: &[(&str, &str)]) -> Vec<VirtualNode> {
    config(properties).virtual_nodes().expect("valid nodes")
}

/// What is said about a configuration that is refused.
fn refusal(properties: &[(&str, &str)]) -> String {
    let loaded = Configuration::from_properties(properties.iter().copied());
    match loaded.and_then(|config| config.virtual_nodes().map(drop)) {
        Ok(()) => panic!("{properties:?} is not refused"),
        Err(error) => error.to_string(),
    }
}

fn ports(node: &VirtualNode) -> [u16; 3] {
    [
        node.config.get(&keys::DATANODE_ADDRESS).port,
        node.config.get(&keys::DATANODE_IPC_ADDRESS).port,
        node.config.get(&keys::DATANODE_HTTP_ADDRESS).port,
    ]
}

#[test]
fn without_names_there_are_no_virtual_nodes() {
    assert!(nodes(&[]).is_empty());
    assert!(nodes(&[("hayloft.nodes", " , ")]).is_empty());
}

#[test]
fn each_has_directories_and_consecutive_ports() {
    let nodes = nodes(&[
        ("hayloft.nodes", "a, b,c"),
        ("dfs.datanode.data.dir", "[SSD]file:///d/1,/d/2"),
        ("dfs.datanode.address", "10.0.0.1:1000"),
        ("dfs.datanode.ipc.address", "0.0.0.0:2000"),
        ("dfs.datanode.http.address", "0.0.0.0:0"),
    ]);
    let names: Vec<_> = nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let all: Vec<_> = nodes.iter().map(ports).collect();
    assert_eq!(all, [[1000, 2000, 0], [1001, 2001, 0], [1002, 2002, 0]]);
    assert_eq!(
        nodes[2].config.get(&keys::DATANODE_ADDRESS).host,
        "10.0.0.1"
    );
    let dirs = nodes[1].config.get(&keys::DATA_DIRS);
    let shown: Vec<_> = dirs.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["[SSD]/d/1/b", "[DISK]/d/2/b"]);
    assert_eq!(nodes[1].config.node_name(), Some(&nodes[1].name));
}

/// Hadoop's defaults (9866, 9867, 9864) are too close together for consecutive ports.
#[test]
fn ports_that_would_meet_go_on_in_tens() {
    let nodes = nodes(&[("hayloft.nodes", "a,b,c")]);
    let all: Vec<_> = nodes.iter().map(ports).collect();
    let tens = [[9866, 9867, 9864], [9876, 9877, 9874], [9886, 9887, 9884]];
    assert_eq!(all, tens);
}

#[test]
fn a_key_with_the_name_of_a_node_counts_for_that_node() {
    let nodes = nodes(&[
        ("hayloft.nodes", "a,b"),
        ("dfs.datanode.address.a", "10.0.0.1:1000"),
        ("dfs.datanode.address.b", "10.0.0.2:1000"),
        ("dfs.datanode.ipc.address.b", "10.0.0.2:${port}"),
        ("port", "7"),
        ("dfs.datanode.http.address.b", ""),
        ("dfs.datanode.hostname", "host"),
        ("dfs.datanode.hostname.b", "host-b"),
    ]);
    assert_eq!(ports(&nodes[0]), [1000, 9867, 9864]);
    assert_eq!(ports(&nodes[1]), [1000, 7, 9865]);
    let host = |node: &VirtualNode| node.config.get(&keys::DATANODE_HOSTNAME);
    assert_eq!(host(&nodes[0]).as_deref(), Some("host"));
    assert_eq!(host(&nodes[1]).as_deref(), Some("host-b"));
}

#[test]
fn what_cannot_work_is_refused_in_one_sentence() {
    let long = "x".repeat(33);
    for bad in [
        "a,a",
        "a b",
        "a.b",
        "-a",
        "ü",
        "current",
        "hayloft-parity",
        long.as_str(),
    ] {
        let said = refusal(&[("hayloft.nodes", bad)]);
        assert!(said.starts_with("hayloft.nodes = '"), "{said}");
    }
    let many: Vec<String> = (0..65).map(|i| format!("n{i}")).collect();
    let said = refusal(&[("hayloft.nodes", &many.join(","))]);
    assert!(said.contains("at most 64"), "{said}");
    let said = refusal(&[("hayloft.nodes", "a,b"), ("dfs.datanode.address.c", "h:1")]);
    assert!(said.contains("dfs.datanode.address.c") && said.contains("does not list"));
    let said = refusal(&[
        ("hayloft.nodes", "a"),
        ("dfs.datanode.address.a", "nonsense"),
    ]);
    assert!(
        said.contains("dfs.datanode.address.a = 'nonsense'"),
        "{said}"
    );
    let said = refusal(&[
        ("hayloft.nodes", "a,b"),
        ("dfs.datanode.address", "0.0.0.0:65535"),
    ]);
    assert!(
        said.contains("above 65535") && said.contains("dfs.datanode.address.b"),
        "{said}"
    );
    let tiering = "dfs.datanode.same-disk-tiering.enabled";
    let said = refusal(&[("hayloft.nodes", "a,b"), (tiering, "true")]);
    assert!(
        said.contains(tiering) && said.contains("hayloft.nodes"),
        "{said}"
    );
}

#[test]
fn two_ports_that_are_one_are_refused_with_both_keys() {
    let shared = |a: &str, b: &str| {
        refusal(&[
            ("hayloft.nodes", "a,b"),
            ("dfs.datanode.address.a", a),
            ("dfs.datanode.ipc.address.b", b),
        ])
    };
    for (a, b) in [
        ("10.0.0.1:1000", "10.0.0.1:1000"),
        ("0.0.0.0:1000", "10.0.0.1:1000"),
        ("host:1000", "[::]:1000"),
        ("host:1000", "HOST:1000"),
    ] {
        let said = shared(a, b);
        let both = ["dfs.datanode.address.a", "dfs.datanode.ipc.address.b"];
        assert!(both.iter().all(|key| said.contains(key)), "{said}");
    }
}

#[test]
fn keys_of_a_volume_go_by_the_configured_directory() {
    let nodes = nodes(&[
        ("hayloft.nodes", "a"),
        ("dfs.datanode.data.dir", "/d/a,/e"),
        ("hayloft.io.engine./d/a", "null"),
        ("dfs.datanode.du.reserved./e", "7"),
    ]);
    let config = &nodes[0].config;
    let dirs = config.get(&keys::DATA_DIRS);
    assert_eq!(dirs[0].path, Path::new("/d/a/a"));
    assert_eq!(config.engine_for(&dirs[0]), "null");
    assert_eq!(config.engine_for(&dirs[1]), "auto");
    assert_eq!(config.reserved_for(&dirs[1]).bytes, 7);
    assert_eq!(config.reserved_for(&dirs[0]).bytes, 0);
}

#[test]
fn keys_of_listed_nodes_are_known() {
    let listed = [
        ("hayloft.nodes", "a"),
        ("dfs.datanode.hostname.a", "x"),
        ("dfs.datanode.address.a", "x:1"),
    ];
    assert_eq!(config(&listed).warnings(), Vec::<String>::new());
    // In a file for all hosts, where this one has no virtual nodes.
    let lines = config(&listed[1..]).warnings();
    assert_eq!(lines.len(), 2, "{lines:?}");
}

/// A changed list of directories reaches each node as its own.
#[test]
fn a_node_reads_its_changes_from_the_files_of_all() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let write = |dirs: &str, nodes: &str| {
        let property = |(name, value): (&str, &str)| {
            format!("<property><name>{name}</name><value>{value}</value></property>")
        };
        let text: String = [
            ("hayloft.nodes", nodes),
            ("dfs.datanode.data.dir", dirs),
            ("dfs.datanode.address", "0.0.0.0:0"),
        ]
        .map(property)
        .concat();
        let path = dir.path().join("hdfs-site.xml");
        std::fs::write(path, format!("<configuration>{text}</configuration>")).expect("writes");
    };
    write("/d/1", "a,b");
    let plain = Configuration::load(dir.path(), &[]).expect("valid");
    let mut nodes = plain.virtual_nodes().expect("valid");
    let shared = SharedConfig::new(nodes.remove(1).config);
    assert!(shared.changes().expect("readable").is_empty());
    write("/d/1,[SSD]/d/2", "a,b");
    let changes = shared.changes().expect("readable");
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!(changes[0].new.as_deref(), Some("[DISK]/d/1/b,[SSD]/d/2/b"));
    shared.apply(&changes[0]).expect("allowed");
    assert!(shared.changes().expect("readable").is_empty());
    // One that is not allowed stays to be refused.
    write("hdfs://x/y", "a,b");
    let changes = shared.changes().expect("readable");
    assert_eq!(changes[0].new.as_deref(), Some("hdfs://x/y"));
    assert!(shared.apply(&changes[0]).is_err());
}
