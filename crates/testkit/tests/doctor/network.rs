//! Faults of names, ways and ports, in network namespaces.

use crate::ask::{Around, BAD, Covered, SLOW, conf};
use hayloft_testkit::Outcome;
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::scratch;
use hayloft_testkit::mounts::run;
use hayloft_testkit::suite::passed;
use std::path::PathBuf;
use std::process::Command;

/// A configuration whose NameNode has this address.
struct Conf(tempfile::TempDir);

impl Conf {
    fn new(namenode: &str, more: &[(&str, &str)]) -> Result<Self> {
        let base = scratch("doctor-net-")?;
        let uri = format!("hdfs://{namenode}");
        let dir = base.path().display().to_string();
        let same = [
            ("fs.defaultFS", uri.as_str()),
            ("dfs.datanode.data.dir", &dir),
        ];
        conf(base.path(), &[&same[..], more].concat())?;
        Ok(Self(base))
    }

    fn args(&self, only: &str) -> Vec<String> {
        let dir = self.0.path().display().to_string();
        ["--only", only, "--conf", &dir].map(String::from).to_vec()
    }
}

/// Settings that a network namespace has for itself.
pub fn settings() -> Result<Outcome> {
    let conf = Conf::new("127.0.0.1:1", &[])?;
    for (key, value, check, word) in [
        ("tcp_congestion_control", "bbr", "congestion-control", "bbr"),
        ("tcp_window_scaling", "0", "tcp-windows", "window_scaling"),
        ("tcp_sack", "0", "tcp-windows", "sack"),
        ("tcp_rmem", "4096 87380 131072", "tcp-windows", "tcp_rmem"),
        ("tcp_wmem", "4096 16384 131072", "tcp-windows", "tcp_wmem"),
        ("ip_local_port_range", "1024 65535", "ports", "9866"),
    ] {
        let set = |value: &str| {
            let script = format!("echo '{value}' > /proc/sys/net/ipv4/{key}");
            Around::script(&script).within(&Around::words(&["unshare", "--net"]))
        };
        if key == "tcp_congestion_control" {
            let all = "/proc/sys/net/ipv4/tcp_available_congestion_control";
            if !std::fs::read_to_string(all).is_ok_and(|all| all.contains(value)) {
                println!("not planted: this kernel has no {value}");
                continue;
            }
            set("reno").doctor(&conf.args(check))?.expect_well()?;
        }
        let said = set(value).doctor(&conf.args(check))?;
        said.expect(check, "slow", word)?;
        said.expect_code(SLOW)?;
    }
    passed()
}

/// Two network namespaces, a router between them.
struct Net {
    names: [String; 3],
}

/// Address of the other side.
const FAR: &str = "10.77.2.2";

impl Net {
    fn new() -> Result<Self> {
        let name = |side: &str| format!("doctor-{}-{side}", std::process::id());
        let net = Self {
            names: ["near", "way", "far"].map(name),
        };
        let [near, way, far] = &net.names;
        for name in &net.names {
            net.ip(&format!("netns add {name}"))?;
            net.ip(&format!("-n {name} link set lo up"))?;
        }
        for (side, number) in [(near, 1), (far, 2)] {
            net.ip(&format!(
                "link add d{number} netns {side} type veth peer name w{number} netns {way}"
            ))?;
            net.ip(&format!(
                "-n {side} addr add 10.77.{number}.2/24 dev d{number}"
            ))?;
            net.ip(&format!(
                "-n {way} addr add 10.77.{number}.1/24 dev w{number}"
            ))?;
            net.ip(&format!("-n {side} link set d{number} up"))?;
            net.ip(&format!("-n {way} link set w{number} up"))?;
            net.ip(&format!("-n {side} route add default via 10.77.{number}.1"))?;
        }
        let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward";
        run(Command::new("ip").args(["netns", "exec", way, "sh", "-c", forward]))?;
        Ok(net)
    }

    fn ip(&self, words: &str) -> Result<String> {
        run(Command::new("ip").args(words.split(' ')))
    }

    /// Where a node would run.
    fn near(&self) -> Around {
        Around::words(&["ip", "netns", "exec", &self.names[0]])
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

fn missing() -> Option<Outcome> {
    let there = |tool: &str| {
        let found = Command::new("sh")
            .args(["-c", &format!("command -v {tool}")])
            .output();
        found.is_ok_and(|found| found.status.success())
    };
    let tool = ["ip", "unshare"].into_iter().find(|tool| !there(tool))?;
    Some(Outcome::Skipped(format!("{tool} is not installed")))
}

/// Packets that are small everywhere, and packets that are cut on the way.
pub fn packets() -> Result<Outcome> {
    if let Some(missing) = missing() {
        return Ok(missing);
    }
    let net = Net::new()?;
    let conf = Conf::new(&format!("{FAR}:8020"), &[])?;
    net.near().doctor(&conf.args("mtu"))?.expect_nothing()?;
    net.ip(&format!("-n {} link set w2 mtu 1000", net.names[1]))?;
    let said = net.near().doctor(&conf.args("mtu"))?;
    said.expect(
        "mtu",
        "slow",
        "the way takes 1000 bytes, and d1 sends up to 1500",
    )?;
    for (name, device) in [(0, "d1"), (1, "w1")] {
        net.ip(&format!("-n {} link set {device} mtu 900", net.names[name]))?;
    }
    let said = net.near().doctor(&conf.args("mtu"))?;
    said.expect("mtu", "slow", "packets of 900 bytes")?;
    passed()
}

/// A NameNode that does not run, and one behind a firewall that drops.
pub fn far_away() -> Result<Outcome> {
    if let Some(missing) = missing() {
        return Ok(missing);
    }
    let net = Net::new()?;
    let conf = Conf::new(&format!("{FAR}:8020"), &[])?;
    let said = net.near().doctor(&conf.args("namenode"))?;
    said.expect("namenode", "bad", "nothing listens there")?;
    // The router forgets what goes to the other side, as a firewall that drops.
    net.ip(&format!("-n {} route add blackhole {FAR}/32", net.names[1]))?;
    let said = net.near().doctor(&conf.args("namenode"))?;
    said.expect("namenode", "bad", "firewall")?;
    said.expect_code(BAD)?;
    passed()
}

/// Names that lead nowhere, to this host alone, or to another.
pub fn names() -> Result<Outcome> {
    let host = "doctor-node.test";
    let conf = Conf::new("10.77.9.9:8020", &[("dfs.datanode.hostname", host)])?;
    // Name servers are not asked: what they say is not ours.
    let lookup = ("/etc/nsswitch.conf", "hosts: files\n");
    let with = |hosts: &str| {
        let device = "ip link set lo up; ip addr add 10.77.8.8/32 dev lo";
        let covered = Covered::new(&[("/etc/hosts", hosts), lookup])?;
        let inside = covered.around().within(&Around::script(device));
        let around = inside.within(&Around::words(&["unshare", "--net"]));
        around.doctor(&conf.args("names"))
    };
    if !PathBuf::from(lookup.0).exists() {
        return Ok(Outcome::Skipped(format!("{} is not there", lookup.0)));
    }
    for (hosts, severity, word) in [
        ("127.0.0.1 localhost\n", "bad", "has no address"),
        ("127.0.1.1 doctor-node.test\n", "bad", "127.0.1.1 only"),
        ("10.77.7.7 doctor-node.test\n", "bad", "does not have"),
        (
            "10.77.8.8 other.test doctor-node.test\n",
            "slow",
            "called other.test",
        ),
    ] {
        with(hosts)?.expect("names", severity, word)?;
    }
    with("10.77.8.8 doctor-node.test\n")?.expect_well()?;
    passed()
}

/// A card that has found no partner for its speed.
pub fn cards() -> Result<Outcome> {
    if let Some(missing) = missing() {
        return Ok(missing);
    }
    let net = Net::new()?;
    let conf = Conf::new(&format!("{FAR}:8020"), &[])?;
    net.near()
        .doctor(&conf.args("network-card"))?
        .expect_well()?;
    let covered = Covered::new(&[("/sys/class/net/d1/speed", "100\n")])?;
    let said = covered
        .around()
        .within(&net.near())
        .doctor(&conf.args("network-card"))?;
    said.expect("network-card", "slow", "100 Mb/s")?;
    passed()
}
