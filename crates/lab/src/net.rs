//! Hosts as network namespaces on switches, every link shaped in both directions.
//!
//! All switches are bridges in one namespace, so that removing the testbed's namespaces removes
//! everything; nothing is added to the machine's own network.

use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::describe::Description;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::mounts::run;
use hayloft_testkit::where_processes_run::Place;

/// Bytes that a shaped link lets pass at once: enough for the largest segment that the kernel sends
/// whole, and for the timer's tick at high rates.
const BURST_MIN: u64 = 128 << 10;
/// How long a packet may wait at a shaped link before it is dropped.
const QUEUE_MS: u64 = 50;
/// How often it is looked whether servers have ended, 50 ms apart: a minute.
const END_LOOKS: usize = 1200;

/// What the addresses of all hosts and links are in.
const NETWORK: &str = "10.77.0.0/16";
/// Routing tables of links have numbers from here on.
const FIRST_TABLE: u32 = 100;

/// The prefix of every namespace of the testbed `name`.
fn prefix(name: &str) -> String {
    format!("hl-{name}-")
}

/// The namespace of a host.
#[must_use]
pub fn namespace(name: &str, host: &str) -> String {
    format!("{}{host}", prefix(name))
}

/// Where the switches are; no described host can have this name.
pub const SWITCH: &str = "SW";

/// The name of the NameNode's host; no described host can have it.
pub const NAMENODE_HOST: &str = "NN";

/// The address of the host with this position in the description; the NameNode's is `.250`.
#[must_use]
pub fn address(position: Option<usize>) -> Ipv4Addr {
    let last = position.map_or(Some(250), |i| u8::try_from(i + 1).ok());
    Ipv4Addr::new(
        10,
        77,
        0,
        last.expect("a description has fewer than 250 hosts"),
    )
}

/// The address of a link of that host, counted from 0: the third number of the address.
#[must_use]
pub fn link_address(position: usize, link: u8) -> Ipv4Addr {
    let [a, b, _, host] = address(Some(position)).octets();
    Ipv4Addr::new(a, b, link, host)
}

/// The host with this name and position in the description, as a place of processes that stay or
/// do not.
#[must_use]
pub fn place(name: &str, host: &str, position: Option<usize>, stays: bool) -> Place {
    Place::namespace(namespace(name, host), address(position)).staying(stays)
}

/// As [`place`], at an address of one of its links.
#[must_use]
pub fn link_place(name: &str, host: &str, address: Ipv4Addr, stays: bool) -> Place {
    Place::namespace(namespace(name, host), address).staying(stays)
}

/// Makes switches, hosts and links. What is left of an earlier testbed of this name must be gone.
///
/// # Errors
/// [`TestkitError::Talk`] with what `ip` or `tc` said; what was made so far is removed.
pub fn make(described: &Description) -> Result<()> {
    build(described).inspect_err(|_| {
        let _already_failing = remove(&described.name);
    })
}

fn build(described: &Description) -> Result<()> {
    let switch = namespace(&described.name, SWITCH);
    ip(&["netns", "add", &switch])?;
    add_bridge(&switch, "core")?;
    for (at, _) in described.racks.iter().enumerate() {
        let (bridge, up, down) = (format!("rack{at}"), format!("up{at}"), format!("down{at}"));
        add_bridge(&switch, &bridge)?;
        ip(&[
            "-n", &switch, "link", "add", "name", &up, "type", "veth", "peer", "name", &down,
        ])?;
        for (port, master) in [(&up, bridge.as_str()), (&down, "core")] {
            ip(&["-n", &switch, "link", "set", port, "master", master, "up"])?;
            if described.network.uplink_mbit > 0 {
                shape(&switch, port, described.network.uplink_mbit)?;
            }
        }
    }
    add_host(described, NAMENODE_HOST, None, "core", 0)?;
    let mut position = 0;
    for (at, rack) in described.racks.iter().enumerate() {
        for host in &rack.hosts {
            let mbit = host.link_mbit.unwrap_or(described.network.link_mbit);
            add_host(
                described,
                &host.name,
                Some(position),
                &format!("rack{at}"),
                mbit,
            )?;
            for link in 1..=host.more_links {
                let bridge = format!("rack{at}");
                add_link((described, &host.name, &bridge), (position, link), mbit)?;
            }
            if host.more_links > 0 {
                answer_on_own_link(&namespace(&described.name, &host.name))?;
            }
            position += 1;
        }
    }
    Ok(())
}

fn add_bridge(switch: &str, name: &str) -> Result<()> {
    ip(&["-n", switch, "link", "add", "name", name, "type", "bridge"])?;
    ip(&["-n", switch, "link", "set", name, "up"])?;
    Ok(())
}

/// The switch's end of a link of a host, counted from 0.
fn port(host: &str, link: u8) -> String {
    match link {
        0 => format!("p-{host}"),
        link => format!("p{link}-{host}"),
    }
}

/// Whether an interface of the switches' namespace is the end of a link of this host.
pub(super) fn is_port_of(interface: &str, host: &str) -> bool {
    let rest = interface.strip_prefix('p');
    let of = rest.and_then(|rest| rest.split_once('-'));
    of.is_some_and(|(link, of)| of == host && link.bytes().all(|b| b.is_ascii_digit()))
}

fn add_host(
    described: &Description,
    host: &str,
    position: Option<usize>,
    bridge: &str,
    mbit: u32,
) -> Result<()> {
    let switch = namespace(&described.name, SWITCH);
    let own = namespace(&described.name, host);
    let port = port(host, 0);
    ip(&["netns", "add", &own])?;
    ip(&[
        "-n", &switch, "link", "add", "name", &port, "type", "veth", "peer", "name", "eth0",
        "netns", &own,
    ])?;
    ip(&["-n", &switch, "link", "set", &port, "master", bridge, "up"])?;
    let cidr = format!("{}/16", address(position));
    ip(&["-n", &own, "addr", "add", &cidr, "dev", "eth0"])?;
    ip(&["-n", &own, "link", "set", "eth0", "up"])?;
    ip(&["-n", &own, "link", "set", "lo", "up"])?;
    if mbit > 0 {
        shape(&own, "eth0", mbit)?;
        shape(&switch, &port, mbit)?;
    }
    Ok(())
}

/// A link beside the first of a host: what has its address leaves through it.
fn add_link(
    (described, host, bridge): (&Description, &str, &str),
    (position, link): (usize, u8),
    mbit: u32,
) -> Result<()> {
    let switch = namespace(&described.name, SWITCH);
    let own = namespace(&described.name, host);
    let (port, name) = (port(host, link), format!("eth{link}"));
    ip(&[
        "-n", &switch, "link", "add", "name", &port, "type", "veth", "peer", "name", &name,
        "netns", &own,
    ])?;
    ip(&["-n", &switch, "link", "set", &port, "master", bridge, "up"])?;
    let address = link_address(position, link).to_string();
    ip(&[
        "-n",
        &own,
        "addr",
        "add",
        &format!("{address}/16"),
        "dev",
        &name,
    ])?;
    ip(&["-n", &own, "link", "set", &name, "up"])?;
    let table = (FIRST_TABLE + u32::from(link)).to_string();
    let route = ["route", "add", NETWORK, "dev", &name, "table", &table];
    ip(&[["-n", own.as_str()].as_slice(), &route].concat())?;
    let rule = ["rule", "add", "from", &address, "table", &table];
    ip(&[["-n", own.as_str()].as_slice(), &rule].concat())?;
    shape(&own, &name, mbit)?;
    shape(&switch, &port, mbit)
}

/// Each link answers for its own address only: else the first one would carry what comes for all.
fn answer_on_own_link(host: &str) -> Result<()> {
    hayloft_testkit::where_processes_run::within(host, || {
        for (key, value) in [("arp_ignore", "1"), ("arp_announce", "2")] {
            let path = format!("/proc/sys/net/ipv4/conf/all/{key}");
            std::fs::write(&path, value).map_err(TestkitError::file("writing", path))?;
        }
        Ok(())
    })
}

/// Gives the first link of a host of the testbed `name` another rate, Mbit/s, in both directions.
///
/// # Errors
/// What `tc` said, such as that there is no such host.
pub fn set_link(name: &str, host: &str, mbit: u32) -> Result<()> {
    shape(&namespace(name, host), "eth0", mbit)?;
    shape(&namespace(name, SWITCH), &port(host, 0), mbit)
}

/// Limits what leaves through `port`, whatever limit it had.
fn shape(namespace: &str, port: &str, mbit: u32) -> Result<()> {
    // Ten milliseconds of the rate: fine enough beside disks, coarse enough for the timer.
    let burst = (u64::from(mbit) * 125_000 / 100).max(BURST_MIN);
    let (rate, burst) = (format!("{mbit}mbit"), burst.to_string());
    let latency = format!("{QUEUE_MS}ms");
    let arguments = [
        "-n", namespace, "qdisc", "replace", "dev", port, "root", "tbf", "rate", &rate, "burst",
        &burst, "latency", &latency,
    ];
    run(Command::new("tc").args(arguments)).map(drop)
}

/// Removes every namespace of the testbed `name` with all that runs in it; none is no error.
///
/// # Errors
/// When a namespace cannot be removed.
pub fn remove(name: &str) -> Result<()> {
    remove_where(name, |_| true)
}

/// As [`remove`], but leaves the switches, where the disks are served.
///
/// # Errors
/// When a namespace cannot be removed.
pub fn remove_hosts(name: &str) -> Result<()> {
    let switch = namespace(name, SWITCH);
    remove_where(name, |namespace| namespace != switch)
}

fn remove_where(name: &str, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let prefix = prefix(name);
    for namespace in namespaces()?
        .iter()
        .filter(|n| n.starts_with(&prefix) && wanted(n))
    {
        kill_all(namespace)?;
        ip(&["netns", "delete", namespace])?;
    }
    Ok(())
}

/// Asks the processes beside the switches (they serve disks) to end, and waits a little.
///
/// # Errors
/// When they cannot be listed.
pub fn end_servers(name: &str) -> Result<()> {
    let switch = namespace(name, SWITCH);
    if !namespaces()?.contains(&switch) {
        return Ok(());
    }
    // Asked once: what they start to clean up (umount, losetup) is to run to its end.
    for pid in pids(&switch)? {
        signal(pid, Signal::TERM);
    }
    for _ in 0..END_LOOKS {
        if pids(&switch)?.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn pids(namespace: &str) -> Result<Vec<i32>> {
    let listed = ip(&["netns", "pids", namespace])?;
    Ok(listed
        .lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect())
}

fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _gone_already = rustix::process::kill_process(pid, signal);
    }
}

/// Whether anything of the testbed `name` is there.
///
/// # Errors
/// When namespaces cannot be listed.
pub fn is_there(name: &str) -> Result<bool> {
    let prefix = prefix(name);
    Ok(namespaces()?.iter().any(|n| n.starts_with(&prefix)))
}

fn namespaces() -> Result<Vec<String>> {
    let listed = ip(&["netns", "list"])?;
    let first_word = |line: &str| line.split_whitespace().next().map(str::to_owned);
    Ok(listed.lines().filter_map(first_word).collect())
}

/// Kills what runs in a namespace that a testbed made.
fn kill_all(namespace: &str) -> Result<()> {
    for _ in 0..100 {
        let pids = pids(namespace)?;
        if pids.is_empty() {
            return Ok(());
        }
        for pid in pids {
            signal(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(TestkitError::Talk(format!(
        "processes in namespace {namespace} do not end (ip netns pids {namespace})"
    )))
}

/// Whether namespaces with a shaped link can be made here.
///
/// # Errors
/// What the first refused step said.
pub fn probe() -> Result<()> {
    let name = format!("hlprobe{}", std::process::id());
    let tried = ip(&["netns", "add", &name]).and_then(|_| {
        ip(&[
            "-n", &name, "link", "add", "name", "a", "type", "veth", "peer", "name", "b",
        ])?;
        ip(&["-n", &name, "link", "add", "name", "c", "type", "bridge"])?;
        shape(&name, "a", 100)
    });
    let removed = ip(&["netns", "delete", &name]);
    tried.and(removed.map(drop))
}

fn ip(arguments: &[&str]) -> Result<String> {
    run(Command::new("ip").args(arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_has_an_address_and_the_first_is_the_host_s() {
        assert_eq!(link_address(4, 0), address(Some(4)));
        assert_eq!(link_address(4, 3), Ipv4Addr::new(10, 77, 3, 5));
    }
}
