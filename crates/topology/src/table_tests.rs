//! The files of racks, hosts and the script.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::process::Command;

use super::*;

fn keys(name: &str, address: &str) -> NodeKeys {
    NodeKeys {
        name: name.to_owned(),
        addresses: vec![address.parse().expect("an address")],
    }
}

fn rack(text: &str) -> RackPath {
    text.parse().expect("a rack")
}

fn host(text: &str) -> SafeName {
    text.parse().expect("a name")
}

struct Site {
    dir: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        Self { dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("topology")
    }

    fn table(&self, name: &str, address: &str) -> TopologyTable {
        TopologyTable::new(&self.path(), keys(name, address))
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.dir.path().join(name)).expect("readable")
    }

    /// What the script prints of these hosts.
    fn script(&self, hosts: &[&str]) -> String {
        let script = self.dir.path().join("topology.sh");
        let ran = Command::new(script).args(hosts).output().expect("runs");
        assert!(ran.status.success(), "{ran:?}");
        String::from_utf8(ran.stdout).expect("text")
    }
}

/// A node whose name is an address, and one whose name was taken out by hand.
#[test]
fn addresses_that_were_added_by_hand_stay() {
    for (name, of_name) in [("10.0.0.1", "10.0.0.1"), ("dn1", "dn1")] {
        let site = Site::new();
        let one = site.table(name, "10.0.0.1");
        one.write("test", &rack("/z1/u1"), None).expect("written");
        let text = site.text("topology");
        let left: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with(of_name))
            .collect();
        let by_hand = "10.0.0.5    /z1/u5\n10.0.0.6    /z1/u6\n";
        for text in [text.clone() + by_hand, left.join("\n") + "\n" + by_hand] {
            fs::write(site.path(), text).expect("writes");
            one.write("test", &rack("/z1/u1"), None).expect("written");
            let now = site.text("topology");
            assert!(
                now.contains("10.0.0.5 ") && now.contains("10.0.0.6 "),
                "{now}"
            );
        }
    }
}

#[test]
fn nodes_keep_one_file_without_taking_each_others_lines() {
    let site = Site::new();
    let (one, two) = (site.table("dn1", "10.0.0.1"), site.table("dn2", "10.0.0.2"));
    assert_eq!(one.known().expect("nothing yet"), KnownPlace::default());
    let metal = host("metal4");
    let changed = one
        .write("ec2", &rack("/z/r1"), Some(&metal))
        .expect("written");
    assert_eq!(changed.len(), 3);
    assert!(
        one.write("ec2", &rack("/z/r1"), Some(&metal))
            .expect("same")
            .is_empty()
    );
    two.write("file", &rack("/z/r2"), None).expect("written");
    one.write("ec2", &rack("/z/r3"), Some(&metal))
        .expect("written");
    let pairs = |text: &str| {
        let lines = text.lines().filter_map(pair);
        let mut pairs: Vec<_> = lines.map(|(a, b)| format!("{a} {b}")).collect();
        pairs.sort();
        pairs.join(", ")
    };
    let wanted = "10.0.0.1 /z/r3, 10.0.0.2 /z/r2, dn1 /z/r3, dn2 /z/r2";
    assert_eq!(pairs(&site.text("topology")), wanted);
    assert_eq!(
        pairs(&site.text("topology.domains")),
        "10.0.0.1 metal4, dn1 metal4"
    );
    let known = one.known().expect("readable");
    assert_eq!(known.source.as_deref(), Some("ec2"));
    assert_eq!((known.rack, known.host), (Some(rack("/z/r3")), Some(metal)));
    // `TableMapping` takes lines that begin with # for comments, and warns of others.
    let lines = site.text("topology");
    let fits = |line: &str| line.starts_with('#') || line.split_whitespace().count() == 2;
    assert!(lines.lines().all(fits), "{lines}");
}

#[test]
fn the_script_prints_a_rack_for_each_host() {
    let site = Site::new();
    let one = site.table("DN1", "10.0.0.1");
    one.write("ec2", &rack("/z/r1"), None).expect("written");
    let said = site.script(&["10.0.0.1", "dn1", "10.9.9.9"]);
    assert_eq!(said, "/z/r1\n/z/r1\n/default-rack/default-rack\n");
    let mode = fs::metadata(site.dir.path().join("topology.sh")).expect("there");
    assert_eq!(mode.permissions().mode() & 0o777, 0o755);
    fs::remove_file(site.path()).expect("removed");
    let script = site.dir.path().join("topology.sh");
    let ran = Command::new(script).arg("dn1").output().expect("runs");
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
}

#[test]
fn what_is_there_stays_when_nothing_can_be_written() {
    let site = Site::new();
    fs::write(site.path(), "10.0.0.9 /one\n").expect("written");
    let one = site.table("dn1", "10.0.0.1");
    let error = one.write("ec2", &rack("/z/r1"), None).expect_err("mixed");
    assert!(error.to_string().contains("--flat"), "{error}");
    assert_eq!(site.text("topology"), "10.0.0.9 /one\n");
    fs::write(site.path(), "10.0.0.1 not-a-rack\n").expect("written");
    let error = one.known().expect_err("no rack");
    assert!(
        error.to_string().contains("the line of this node"),
        "{error}"
    );
    fs::write(site.path(), [0xff, 0xfe]).expect("written");
    one.known().expect_err("no text");
    let gone = TopologyTable::new(Path::new("/no/such/dir/topology"), keys("a", "10.0.0.1"));
    gone.write("ec2", &rack("/z/r1"), None)
        .expect_err("no directory");
}

#[test]
fn nodes_that_write_at_once_lose_no_line() {
    let site = Site::new();
    std::thread::scope(|scope| {
        for n in 0..8 {
            let table = site.table(&format!("dn{n}"), &format!("10.0.0.{n}"));
            let place = rack(&format!("/z/r{n}"));
            scope.spawn(move || table.write("ec2", &place, None).expect("written"));
        }
    });
    assert_eq!(site.text("topology").lines().filter_map(pair).count(), 16);
}

#[test]
fn what_others_wrote_is_taken_over_only_when_told_so() {
    for name in ["topology.sh", "topology.domains"] {
        let site = Site::new();
        fs::write(site.dir.path().join(name), "10.0.0.9 by-hand\n").expect("written");
        let one = site.table("dn1", "10.0.0.1");
        let error = one.write("ec2", &rack("/z/r1"), None).expect_err("foreign");
        assert!(error.to_string().contains("--force"), "{error}");
        assert!(!site.path().exists(), "nothing else was written");
        assert_eq!(site.text(name), "10.0.0.9 by-hand\n");
        let one = one.forced(true);
        one.write("ec2", &rack("/z/r1"), None).expect("forced");
        one.forced(false)
            .write("ec2", &rack("/z/r2"), None)
            .expect("now it is ours");
    }
    let domains = Site::new();
    fs::write(domains.dir.path().join("topology.domains"), "10.0.0.9 h\n").expect("written");
    let one = domains.table("dn1", "10.0.0.1").forced(true);
    one.write("ec2", &rack("/z/r1"), None).expect("forced");
    assert!(
        domains.text("topology.domains").contains("10.0.0.9 h\n"),
        "others stay"
    );
}

#[test]
fn owner_and_mode_of_what_is_replaced_stay() {
    let site = Site::new();
    let one = site.table("dn1", "10.0.0.1");
    one.write("ec2", &rack("/z/r1"), None).expect("written");
    let meta = || fs::metadata(site.path()).expect("there");
    assert_eq!(meta().mode() & 0o7777, 0o644);
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o660)).expect("set");
    // Only root gives files away.
    let owner = match chown(site.path(), Some(65_534), Some(65_534)) {
        Ok(()) => (65_534, 65_534),
        Err(_) => (meta().uid(), meta().gid()),
    };
    one.write("ec2", &rack("/z/r2"), None).expect("written");
    assert!(site.text("topology").contains("/z/r2"));
    assert_eq!((meta().uid(), meta().gid()), owner);
    assert_eq!(meta().mode() & 0o7777, 0o660);
}

#[test]
fn a_link_stays_and_its_file_is_replaced() {
    let site = Site::new();
    let real = site.dir.path().join("shared");
    fs::write(&real, "").expect("written");
    symlink("shared", site.path()).expect("linked");
    let one = site.table("dn1", "10.0.0.1");
    one.write("ec2", &rack("/z/r1"), None).expect("written");
    assert!(site.path().is_symlink());
    assert!(site.text("shared").contains("10.0.0.1    /z/r1"));
    assert!(
        site.dir.path().join("shared.lock").exists(),
        "one lock for all links"
    );
    fs::remove_file(&real).expect("removed");
    let error = one.write("ec2", &rack("/z/r1"), None).expect_err("nowhere");
    assert!(error.to_string().contains("leads nowhere"), "{error}");
}

#[test]
fn pipes_devices_and_directories_are_refused() {
    let site = Site::new();
    let pipe = site.path();
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("runs").success());
    for path in [&pipe, Path::new("/dev/null"), site.dir.path()] {
        let table = TopologyTable::new(path, keys("dn1", "10.0.0.1"));
        let refused = [table.known().err(), table.is_ours().err()];
        for error in refused.into_iter().map(|error| error.expect("no file")) {
            assert!(error.to_string().contains("a pipe or a device"), "{error}");
        }
        table
            .write("ec2", &rack("/z/r1"), None)
            .expect_err("no file");
    }
}

#[test]
fn lines_of_an_address_that_the_node_has_no_more_go() {
    let site = Site::new();
    let metal = host("metal4");
    let other = site.table("dn2", "10.0.0.2");
    let write = |table: &TopologyTable| {
        table
            .write("ec2", &rack("/z/r1"), Some(&metal))
            .expect("written");
    };
    write(&site.table("dn1", "10.0.0.1"));
    write(&other);
    write(&site.table("dn1", "10.0.0.7"));
    for file in ["topology", "topology.domains"] {
        let text = site.text(file);
        assert!(!text.contains("10.0.0.1 "), "{text}");
        assert!(
            text.contains("10.0.0.7 ") && text.contains("10.0.0.2 "),
            "{text}"
        );
    }
}
