//! Names, ports, packets and cards.

use std::net::{IpAddr, Ipv4Addr};

use hayloft_console::size;

use crate::facts::Facts;
use crate::facts::network::{NameNodeFacts, Reach};
use crate::finding::Verdicts;
use crate::seen::number;

/// A connection within a data centre takes less, microseconds.
const CONNECT_US: u64 = 10_000;
/// Packets smaller than this are those of no usual network, bytes.
const MTU: u32 = 1280;
/// TCP windows that fill 10 Gb/s at a round trip of 1 ms, bytes.
const WINDOW: i64 = 1 << 20;
/// Packets of a million that may have errors.
const ERRORS_PER_MILLION: i64 = 100;

pub fn names(facts: &Facts, out: &mut Verdicts) {
    let Some(of) = &facts.network else {
        return;
    };
    let name = of.host_name.as_str();
    let hosts = "correct the name server or /etc/hosts, or set dfs.datanode.hostname";
    let here = |of: &NameNodeFacts| of.address.as_ref().is_ok_and(|at| at.ip().is_loopback());
    let alone = of.namenodes.iter().all(here);
    let addresses = match &of.addresses {
        Ok(addresses) => addresses,
        Err(why) => {
            let seen = format!("{name} has no address: {why}");
            let effect = "the node registers under a name that clients and nodes cannot reach";
            return out.bad(name, [&seen, effect, hosts]);
        }
    };
    if addresses.iter().all(IpAddr::is_loopback) && !alone {
        let seen = format!("{name} leads to {} only", shown(addresses));
        let effect = "others that use the name reach themselves, and the NameNode may refuse the \
            node";
        out.bad(name, [&seen, effect, hosts]);
    } else if of.own.is_empty() {
        let seen = format!(
            "{name} leads to {}, which this host does not have",
            shown(addresses)
        );
        let effect = "clients and nodes that use the name reach another host";
        out.bad(name, [&seen, effect, hosts]);
    }
    let short = |name: &str| {
        name.split('.')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase()
    };
    let used: Vec<IpAddr> = of.namenodes.iter().filter_map(from).collect();
    for (ip, back) in of.back.iter().filter(|(ip, _)| !ip.is_loopback()) {
        match back {
            Ok(back) if short(back) == short(name) => {}
            Ok(back) => {
                let seen = format!("{name} leads to {ip}, which is called {back}");
                let effect = "host lists (dfs.hosts), racks and Kerberos go by the other name";
                out.slow(name, [&seen, effect, hosts]);
            }
            // The NameNode resolves the address that it sees.
            Err(why) if used.is_empty() || used.contains(ip) => {
                let seen = format!("{name} leads to {ip}, and that to no name: {why}");
                let effect = "the NameNode refuses the node, unless \
                    dfs.namenode.datanode.registration.ip-hostname-check is false";
                out.bad(name, [&seen, effect, hosts]);
            }
            Err(_) => {}
        }
    }
}

fn shown(addresses: &[IpAddr]) -> String {
    let all: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    all.join(", ")
}

/// The address that the NameNode sees.
fn from(namenode: &NameNodeFacts) -> Option<IpAddr> {
    match &namenode.reach {
        Reach::Connected(_, from) => Some(*from),
        _ => None,
    }
}

/// Why a port cannot be reached, in words.
fn closed(reach: &Reach) -> Option<String> {
    match reach {
        Reach::Connected(..) => None,
        Reach::Refused => Some("nothing listens there".to_owned()),
        Reach::Silent => Some("there is no answer, as behind a firewall".to_owned()),
        Reach::Failed(why) => Some(why.clone()),
        Reach::NoAddress(why) => Some(format!("its name has no address: {why}")),
    }
}

pub fn namenode(facts: &Facts, out: &mut Verdicts) {
    for of in facts.network.iter().flat_map(|network| &network.namenodes) {
        if let Reach::Connected(took @ CONNECT_US.., _) = of.reach {
            let seen = format!("the quickest of five connections took {took} us");
            let effect = "each report and each packet of a pipeline waits for that long";
            let mend = "look at the way: ping, tracepath, tc qdisc show";
            out.slow(&of.rpc, [&seen, effect, mend]);
        }
        if let Some(why) = closed(&of.reach) {
            let effect = "the node cannot register, and no client sees its blocks";
            let mend = "start the NameNode, or open the port in the firewalls of both hosts";
            out.bad(&of.rpc, [&why, effect, mend]);
        }
    }
}

pub fn data_ports(facts: &Facts, out: &mut Verdicts) {
    let Some(network) = &facts.network else {
        return;
    };
    let mend = "open the port of dfs.datanode.address between all nodes and clients: nft list \
        ruleset, iptables -S";
    for (at, reach) in &network.data_ports {
        match closed(reach) {
            // A name that leads nowhere is another check's.
            _ if matches!(reach, Reach::NoAddress(_)) => out.unseen(at, "its name has no address"),
            Some(why) => {
                let effect = "clients and other nodes do not reach this node";
                out.bad(at, [&format!("the own data port: {why}"), effect, mend]);
            }
            None => {}
        }
    }
    for peer in &network.peers {
        if let Some(why) = closed(&peer.reach) {
            let effect = "pipelines from here to that node fail and take others; copies fail";
            out.bad(
                &peer.at,
                [
                    &format!("the data port of another node: {why}"),
                    effect,
                    mend,
                ],
            );
        }
    }
}

pub fn mtu(facts: &Facts, out: &mut Verdicts) {
    for peer in facts.network.iter().flat_map(|network| &network.peers) {
        if let Some((to, way)) = peer.way {
            way_to(facts, &peer.at, to, way, out);
        }
    }
    for of in facts.network.iter().flat_map(|network| &network.namenodes) {
        if let Some(false) = out.look(&of.rpc, &of.large) {
            let effect = "reports and packets of data wait for ever, while small requests work";
            let mend = "give all interfaces and switches one MTU, and let ICMP pass";
            let seen = "a request of many packets had no answer, and a small one had";
            out.bad(&of.rpc, [seen, effect, mend]);
        }
        let (Some(way), Ok(to)) = (out.look(&of.rpc, &of.mtu), &of.address) else {
            continue;
        };
        way_to(facts, &of.rpc, to.ip(), *way, out);
    }
}

/// Judges the packets, in bytes, that the way to an address takes.
fn way_to(facts: &Facts, place: &str, to: IpAddr, way: u32, out: &mut Verdicts) {
    let mend = "give all interfaces and switches one MTU: ip link set dev DEV mtu 1500 (or 9000)";
    match interface_of(facts, to) {
        Some((name, mtu)) if i64::from(way) < mtu => {
            let seen = format!("the way takes {way} bytes, and {name} sends up to {mtu}");
            let effect = "each connection begins with packets that are lost, and where routers \
                are silent it stands still";
            out.slow(place, [&seen, effect, mend]);
        }
        _ if way < MTU => {
            let seen = format!("the way takes packets of {way} bytes");
            let effect = "each packet costs processor time, at both ends and on the way";
            out.slow(place, [&seen, effect, mend]);
        }
        _ => {}
    }
}

/// The interface to an address and its MTU, by the routes of IPv4.
fn interface_of(facts: &Facts, to: IpAddr) -> Option<(&str, i64)> {
    let IpAddr::V4(to) = to else {
        return None;
    };
    let table = facts.host.texts.get("/proc/net/route")?;
    let name = route_of(table, to)?;
    let card = facts.host.cards.iter().find(|card| card.name == name)?;
    Some((&card.name, card.texts.number("mtu")?))
}

/// The interface of the narrowest route.
fn route_of(table: &str, to: Ipv4Addr) -> Option<&str> {
    let to = u32::from_be_bytes(to.octets());
    let routes = table.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let hex = |at: usize| {
            u32::from_str_radix(words.get(at)?, 16)
                .ok()
                .map(u32::swap_bytes)
        };
        let (target, mask) = (hex(1)?, hex(7)?);
        (to & mask == target).then_some((mask, *words.first()?))
    });
    routes.max_by_key(|(mask, _)| *mask).map(|(_, name)| name)
}

pub fn congestion(facts: &Facts, out: &mut Verdicts) {
    let key = "/proc/sys/net/ipv4/tcp_congestion_control";
    match facts.host.texts.want(key) {
        Ok(has @ ("bbr" | "bbr2" | "bbr3")) => {
            let seen = format!("TCP's congestion control is {has}, which paces");
            let effect = "each segment waits for a timer. Within a host 1 GiB took 0.77 s of \
                processor time, and 0.04 with reno; Hayloft's nodes avoid it there, clients do not";
            let mend = "sysctl net.ipv4.tcp_congestion_control=cubic; and in /etc/sysctl.d";
            out.slow("host", [&seen, effect, mend]);
        }
        Ok(_) => {}
        Err(why) => out.unseen("host", &why),
    }
}

pub fn windows(facts: &Facts, out: &mut Verdicts) {
    let texts = &facts.host.texts;
    let sysctl = |name: &str| texts.get(&format!("/proc/sys/net/ipv4/{name}"));
    if sysctl("tcp_window_scaling") == Some("0") {
        let effect = "a connection has 64 KiB on its way: 64 MB/s at a round trip of 1 ms";
        let mend = "sysctl net.ipv4.tcp_window_scaling=1; and in /etc/sysctl.d";
        out.slow("host", ["net.ipv4.tcp_window_scaling is off", effect, mend]);
    }
    if sysctl("tcp_sack") == Some("0") {
        let effect = "after a lost packet all that follow it are sent again";
        let mend = "sysctl net.ipv4.tcp_sack=1; and in /etc/sysctl.d";
        out.slow("host", ["net.ipv4.tcp_sack is off", effect, mend]);
    }
    for name in ["tcp_rmem", "tcp_wmem"] {
        let most = sysctl(name).and_then(|text| number(text.split_whitespace().nth(2)?));
        if let Some(most) = most.filter(|most| *most < WINDOW) {
            let shown = size::show(u64::try_from(most).unwrap_or(0));
            let seen = format!("net.ipv4.{name} ends at {shown}");
            let effect = "one stream cannot fill a fast network: window by round trip is its rate";
            let mend =
                format!("sysctl net.ipv4.{name}='4096 131072 6291456'; and in /etc/sysctl.d");
            out.slow("host", [&seen, effect, &mend]);
        }
    }
}

pub fn cards(facts: &Facts, out: &mut Verdicts) {
    // Vendors of subsystems that are hypervisors: Red Hat, VMware, Oracle.
    let hypervisors = [0x1af4, 0x15ad, 0x80ee];
    let old = ["8139cp", "8139too", "pcnet32", "ne2k-pci", "tulip"];
    for card in &facts.host.cards {
        let place = card.name.as_str();
        let is = |driver: &&String| {
            let usual = ["e1000", "e1000e", "igb"].contains(&driver.as_str());
            let virtual_machine = card.pci.is_some_and(|[_, _, of]| hypervisors.contains(&of));
            old.contains(&driver.as_str()) || usual && virtual_machine
        };
        if let Some(driver) = card.drivers.iter().find(is) {
            let seen = format!("the card is emulated, driver {driver}");
            let effect = "each packet costs the hypervisor: on a network of 940 Mb/s a virtual \
                machine sent 667 and received 431, with virtio 889 and 672";
            let mend =
                "give the virtual machine a card of virtio (libvirt: <model type='virtio'/>)";
            out.slow(place, [&seen, effect, mend]);
        }
        let number = |name: &str| card.texts.number(name).unwrap_or(0);
        let mend = format!("change the cable or the port of the switch; ethtool {place}");
        let speed = number("speed");
        if card.texts.get("duplex") == Some("half") || (1..1000).contains(&speed) {
            let duplex = card.texts.get("duplex").unwrap_or("not known");
            let seen = format!("the link has {speed} Mb/s, duplex {duplex}");
            out.slow(
                place,
                [
                    &seen,
                    "all blocks of the node come and go that slowly",
                    &mend,
                ],
            );
        }
        for way in ["rx", "tx"] {
            let (packets, errors) = (
                number(&format!("statistics/{way}_packets")),
                number(&format!("statistics/{way}_errors")),
            );
            if errors > 100 && errors > packets / 1_000_000 * ERRORS_PER_MILLION {
                let seen = format!("{errors} of {packets} packets had errors ({way})");
                let effect = "lost packets are sent again, and connections slow down";
                out.slow(place, [&seen, effect, &mend]);
            }
        }
    }
}

/// Processes that are no node and have its ports.
fn taken_ports(facts: &Facts, out: &mut Verdicts) {
    let folders = || facts.seen().map(|of| of.folder.as_ref());
    let node = || folders().flatten().flatten().find_map(|folder| folder.node);
    // One whose directories this user cannot see, or that holds them from elsewhere.
    let may_be_it = || node().is_some() || folders().any(|folder| folder.is_err());
    for port in facts.network.iter().flat_map(|network| &network.taken) {
        let who = match &port.holder {
            Some(holder) if node() == Some(holder.pid) => continue,
            Some(holder) if holder.is_node && may_be_it() => continue,
            Some(holder) if holder.is_node => format!(
                "process {} ({}), a DataNode on other directories, listens there",
                holder.pid, holder.name
            ),
            Some(holder) => format!("process {} ({}) listens there", holder.pid, holder.name),
            None if port.outgoing => {
                let effect = "a node does not start until that connection ends";
                let mend = "keep its ports from outgoing connections: name them in \
                    net.ipv4.ip_local_reserved_ports";
                out.bad(
                    &port.at,
                    ["a connection of this host has the port", effect, mend],
                );
                continue;
            }
            None if node().is_some() => continue,
            None if folders().all(|folder| folder.is_ok()) => {
                "a process listens there that this user cannot see, and no node runs on the data \
                 directories"
                    .to_owned()
            }
            None => {
                out.unseen(
                    &port.at,
                    "whether the node listens there only its user and root see",
                );
                continue;
            }
        };
        let effect = "a node does not start: it cannot have this port";
        let mend = "stop that process (ss -ltnp names it), or give the node another port: \
            dfs.datanode.address, dfs.datanode.ipc.address, dfs.datanode.http.address";
        out.bad(&port.at, [&who, effect, mend]);
    }
}

pub fn ports(facts: &Facts, out: &mut Verdicts) {
    taken_ports(facts, out);
    let texts = &facts.host.texts;
    let sysctl = |name: &str| {
        texts
            .get(&format!("/proc/sys/net/{name}"))
            .unwrap_or_default()
    };
    let range: Vec<i64> = sysctl("ipv4/ip_local_port_range")
        .split_whitespace()
        .filter_map(number)
        .collect();
    let listed = sysctl("ipv4/ip_local_reserved_ports").split(',');
    let listed: Vec<(i64, i64)> = listed
        .filter_map(|part| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            Some((number(from)?, number(to)?))
        })
        .collect();
    let reserved = |port: i64| {
        listed
            .iter()
            .any(|(from, to)| (*from..=*to).contains(&port))
    };
    if let [from, to] = range[..] {
        let taken = facts.subject.ports.iter().map(|at| i64::from(at.port));
        let taken =
            taken.filter(|port| (from..=to).contains(port) && !reserved(*port) && *port > 0);
        let taken: Vec<String> = taken.map(|port| port.to_string()).collect();
        if !taken.is_empty() {
            let ports = match &taken[..] {
                [port] => format!("port {port} is"),
                ports => format!("ports {} are", ports.join(",")),
            };
            let taken = taken.join(",");
            let seen = format!("{ports} among those of outgoing connections, {from} to {to}");
            let effect = "a client's connection may have the port when the node starts";
            let mend =
                format!("sysctl net.ipv4.ip_local_reserved_ports={taken}; and in /etc/sysctl.d");
            out.slow("host", [&seen, effect, &mend]);
        }
    }
    if let Some(has) = number(sysctl("core/somaxconn")).filter(|has| *has < 256) {
        let seen = format!("net.core.somaxconn is {has}");
        let effect = "of many clients that connect at once some wait for a second and more";
        out.slow(
            "host",
            [
                &seen,
                effect,
                "sysctl net.core.somaxconn=4096; and in /etc/sysctl.d",
            ],
        );
    }
    let table = |name: &str| number(sysctl(&format!("netfilter/nf_conntrack_{name}")));
    if let (Some(count), Some(most)) = (table("count"), table("max"))
        && count > most / 10 * 9
    {
        let seen = format!("the firewall follows {count} connections, of {most}");
        let effect = "new connections are dropped when its table is full";
        let mend = format!(
            "sysctl net.netfilter.nf_conntrack_max={}",
            most.saturating_mul(4)
        );
        out.slow("host", [&seen, effect, &mend]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_route_counts() {
        let table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\n\
            eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\n\
            eth1\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\n";
        assert_eq!(route_of(table, [192, 0, 2, 9].into()), Some("eth1"));
        assert_eq!(route_of(table, [10, 0, 0, 1].into()), Some("eth0"));
        assert_eq!(route_of("Iface\n", [10, 0, 0, 1].into()), None);
    }
}
