//! The API server's node, and files of the downward API.

use std::fs;

use hayloft_topology::SourceSettings;

use crate::fake::{Answer, FakeServer, Got, ask, ok, place, status};

const NODE: &str = r#"{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
  "metadata": {"name": "node-7", "labels": {"kubernetes.io/hostname": "node-7",
  "topology.kubernetes.io/zone": "eu-1a", "example.com/rack": "r12"}}}"#;

fn server(got: &Got) -> Answer {
    if got.header("authorization") != "Bearer the-token" {
        return status(401);
    }
    let labels = got.header("accept").contains("as=PartialObjectMetadata");
    match (labels, got.path.as_str()) {
        (true, "/api/v1/nodes/node-7") => ok(NODE),
        _ => status(404),
    }
}

/// A pod of a service account, on a node.
fn pod(server: &FakeServer, node: &str) -> (tempfile::TempDir, SourceSettings) {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("token"), "the-token\n").expect("written");
    fs::write(dir.path().join("ca.crt"), "").expect("written");
    let settings = SourceSettings {
        kubernetes_api: Some(server.url()),
        kubernetes_node: Some(node.to_owned()),
        kubernetes_account: Some(dir.path().to_owned()),
        ..SourceSettings::default()
    };
    (dir, settings)
}

#[test]
fn zone_and_label_of_the_node_are_the_rack() {
    let fake = FakeServer::start(server);
    let (_dir, mut settings) = pod(&fake, "node-7");
    let found = ask("kubernetes", &settings);
    assert_eq!(place(&found), ("/eu-1a/node-7", Some("node-7")));
    settings.kubernetes_label = Some("example.com/rack".to_owned());
    let found = ask("kubernetes", &settings);
    assert_eq!(place(&found), ("/eu-1a/r12", Some("node-7")));
    settings.kubernetes_label = Some("example.com/row".to_owned());
    let said = ask("kubernetes", &settings).expect_err("no such label");
    assert!(said.contains("no label example.com/row"), "{said}");
}

#[test]
fn what_a_pod_lacks_is_said() {
    let fake = FakeServer::start(server);
    let (dir, settings) = pod(&fake, "node-8");
    let said = ask("kubernetes", &settings).expect_err("another node");
    assert!(said.contains("no such node"), "{said}");
    fs::write(dir.path().join("token"), "old").expect("written");
    let said = ask("kubernetes", &settings).expect_err("refused");
    assert!(said.contains("needs `get` on nodes"), "{said}");
    fs::remove_file(dir.path().join("token")).expect("removed");
    let said = ask("kubernetes", &settings).expect_err("no token");
    assert!(said.contains("token"), "{said}");
    let mut nameless = settings.clone();
    nameless.kubernetes_node = None;
    let said = ask("kubernetes", &nameless).expect_err("no name");
    assert!(said.contains("NODE_NAME"), "{said}");
    let mut open = settings;
    open.kubernetes_api = Some("http://192.0.2.1".parse().expect("an address"));
    let said = ask("kubernetes", &open).expect_err("no TLS");
    assert!(said.contains("https only"), "{said}");
    let said = ask("kubernetes", &SourceSettings::default()).expect_err("no pod");
    assert!(said.contains("this is no pod"), "{said}");
}

#[test]
fn garbage_of_the_server_is_no_place() {
    for body in ["", "{}", r#"{"metadata": {"name": "node-9"}}"#] {
        let fake = FakeServer::start(move |_| ok(body));
        let (_dir, settings) = pod(&fake, "node-7");
        ask("kubernetes", &settings).expect_err(body);
    }
    let odd = NODE.replace("eu-1a", "../x");
    let fake = FakeServer::start(move |_| ok(&odd));
    let (_dir, settings) = pod(&fake, "node-7");
    let said = ask("kubernetes", &settings).expect_err("unsafe");
    assert!(said.contains("no safe name"), "{said}");
}

#[test]
fn a_file_of_the_downward_api_needs_no_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("labels");
    fs::write(
        &path,
        "app=\"dn\"\ntopology.kubernetes.io/zone=\"eu-1b\"\nrack=\"r3\"\n",
    )
    .expect("written");
    let mut settings = SourceSettings {
        kubernetes_labels_file: Some(path.clone()),
        ..SourceSettings::default()
    };
    assert_eq!(
        place(&ask("kubernetes", &settings)),
        ("/eu-1b/unplaced", None)
    );
    settings.kubernetes_label = Some("rack".to_owned());
    settings.kubernetes_node = Some("node-3".to_owned());
    assert_eq!(
        place(&ask("kubernetes", &settings)),
        ("/eu-1b/r3", Some("node-3"))
    );
    fs::write(&path, "").expect("written");
    settings.kubernetes_label = None;
    settings.kubernetes_node = None;
    let said = ask("kubernetes", &settings).expect_err("no labels");
    assert!(said.contains("no label"), "{said}");
}
