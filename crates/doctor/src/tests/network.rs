//! Names, ports, packets, cards, and what NameNodes say.

use hayloft_conf::HostPort;
use serde_json::json;

use super::{facts, one, said};
use crate::facts::Facts;
use crate::facts::host::CardFacts;
use crate::facts::network::{NameNodeFacts, NetworkFacts, PeerFacts, Reach};
use crate::facts::ports::{HolderFacts, PortFacts};
use crate::finding::Severity::{Bad, Slow};
use crate::seen::Texts;

const HERE: [u8; 4] = [10, 0, 0, 1];

fn namenode() -> NameNodeFacts {
    NameNodeFacts {
        rpc: "nn:8020".into(),
        reach: Reach::Connected(300, HERE.into()),
        address: Ok(([10, 0, 0, 9], 8020).into()),
        mtu: Ok(1500),
        ahead_s: Ok(0.3),
        large: Ok(true),
        info: Ok(json!({"LiveNodes": "{}"})),
        chooser: None,
    }
}

/// A network that is well, but for what `change` does.
pub(super) fn with(change: impl FnOnce(&mut NetworkFacts)) -> Facts {
    let mut network = NetworkFacts {
        host_name: "dn1.example.org".into(),
        addresses: Ok(vec![HERE.into()]),
        own: vec![HERE.into()],
        back: vec![(HERE.into(), Ok("dn1.example.org".into()))],
        synchronised: Ok((true, 1000)),
        data_ports: vec![(
            "dn1.example.org:9866".into(),
            Reach::Connected(50, HERE.into()),
        )],
        namenodes: vec![namenode()],
        peers: vec![PeerFacts {
            at: "10.0.0.2:9866".into(),
            reach: Reach::Connected(200, HERE.into()),
            way: Some(([10, 0, 0, 2].into(), 1500)),
        }],
        taken: Vec::new(),
    };
    change(&mut network);
    let mut facts = facts(Vec::new());
    facts.host.cards = vec![card(&[
        ("mtu", "1500"),
        ("speed", "10000"),
        ("duplex", "full"),
    ])];
    let routes = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n\
        eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0";
    facts.host.texts.add("/proc/net/route", Ok(routes.into()));
    facts.network = Some(network);
    facts
}

fn card(texts: &[(&str, &str)]) -> CardFacts {
    let mut card = CardFacts {
        name: "eth0".into(),
        drivers: vec!["ixgbe".into()],
        texts: Texts::default(),
        pci: Some([0x8086, 0x10fb, 0x1028]),
    };
    for (name, text) in texts {
        card.texts.add(*name, Ok((*text).to_owned()));
    }
    card
}

#[test]
fn a_network_that_is_well_gives_nothing() {
    for check in crate::CHECKS {
        assert_eq!(said(check.name, &with(|_| {})), [], "{}", check.name);
    }
}

#[test]
fn clocks() {
    let found = one("clock", &with(|of| of.namenodes[0].ahead_s = Ok(-312.4)));
    assert_eq!(found.2, "the clock is 312 s behind the NameNode's");
    assert_eq!(found.0, Bad);
    assert_eq!(
        one("clock", &with(|of| of.namenodes[0].ahead_s = Ok(7.0))).0,
        Slow
    );
    assert_eq!(
        one(
            "clock",
            &with(|of| of.synchronised = Ok((false, 16_000_000)))
        )
        .0,
        Slow
    );
}

#[test]
fn names_lead_here_and_back() {
    let none = with(|of| of.addresses = Err("failed to lookup address information".into()));
    assert_eq!(one("names", &none).0, Bad);
    // As Debian's installer writes it.
    let loopback = with(|of| {
        of.addresses = Ok(vec![[127, 0, 1, 1].into()]);
        of.own = vec![[127, 0, 1, 1].into()];
        of.back = vec![([127, 0, 1, 1].into(), Ok("dn1.example.org".into()))];
    });
    assert!(one("names", &loopback).2.contains("127.0.1.1 only"));
    assert_eq!(one("names", &with(|of| of.own.clear())).0, Bad);
    let other = with(|of| of.back[0].1 = Ok("old-name.example.org".into()));
    assert_eq!(one("names", &other).0, Slow);
    let none = with(|of| of.back[0].1 = Err("it has no name".into()));
    assert_eq!(one("names", &none).0, Bad);
    // On one host alone the loopback will do.
    let alone = with(|of| {
        of.addresses = Ok(vec![[127, 0, 0, 1].into()]);
        of.own = vec![[127, 0, 0, 1].into()];
        of.back.clear();
        of.namenodes[0].address = Ok(([127, 0, 0, 1], 8020).into());
    });
    assert_eq!(said("names", &alone), []);
}

#[test]
fn ports_behind_firewalls() {
    let silent = with(|of| of.namenodes[0].reach = Reach::Silent);
    assert!(one("namenode", &silent).2.contains("firewall"));
    assert_eq!(
        one(
            "namenode",
            &with(|of| of.namenodes[0].reach = Reach::Refused)
        )
        .0,
        Bad
    );
    let far = with(|of| of.namenodes[0].reach = Reach::Connected(80_000, HERE.into()));
    assert_eq!(one("namenode", &far).0, Slow);
    let own = with(|of| of.data_ports[0].1 = Reach::Silent);
    assert!(one("data-port", &own).2.starts_with("the own data port"));
    let other = with(|of| of.peers[0].reach = Reach::Silent);
    assert_eq!(one("data-port", &other).1, "10.0.0.2:9866");
}

#[test]
fn ports_that_others_have() {
    let of = |holder: Option<(u32, bool)>, node: Option<u32>, outgoing: bool| {
        let holder = holder.map(|(pid, is_node)| HolderFacts {
            pid,
            name: "nginx".into(),
            is_node,
        });
        let at = "0.0.0.0:9864".to_owned();
        let port = PortFacts {
            at,
            holder,
            outgoing,
        };
        let network = with(|of| of.taken = vec![port]).network;
        let mut of = super::volume("/data/1", super::sata("sda"));
        if let Ok(Some(folder)) = &mut of.folder {
            folder.node = node;
        }
        Facts {
            network,
            ..facts(vec![of])
        }
    };
    let with = |holder, node| of(holder, node, false);
    let found = one("ports", &with(Some((7, false)), None));
    assert_eq!((found.0, found.1.as_str()), (Bad, "0.0.0.0:9864"));
    assert_eq!(found.2, "process 7 (nginx) listens there");
    assert_eq!(one("ports", &with(Some((7, false)), Some(8))).0, Bad);
    assert_eq!(
        said("ports", &with(Some((7, false)), Some(7))),
        [],
        "the node itself"
    );
    assert_eq!(said("ports", &with(Some((7, true)), Some(8))), []);
    let other = one("ports", &with(Some((7, true)), None));
    assert!(
        other.2.contains("a DataNode on other directories"),
        "{}",
        other.2
    );
    assert_eq!(said("ports", &with(None, Some(8))), []);
    assert_eq!(one("ports", &with(None, None)).0, Bad);
    let found = one("ports", &of(None, None, true));
    assert_eq!(
        (found.0, found.2.as_str()),
        (Bad, "a connection of this host has the port")
    );
}

#[test]
fn packets() {
    let cut = one("mtu", &with(|of| of.namenodes[0].mtu = Ok(1400)));
    assert_eq!(cut.2, "the way takes 1400 bytes, and eth0 sends up to 1500");
    let peer = one(
        "mtu",
        &with(|of| of.peers[0].way = Some(([10, 0, 0, 2].into(), 1400))),
    );
    assert_eq!((peer.0, peer.1.as_str()), (Slow, "10.0.0.2:9866"));
    let mut small = with(|of| of.namenodes[0].mtu = Ok(600));
    small.host.cards = vec![card(&[("mtu", "600")])];
    assert_eq!(one("mtu", &small).0, Slow);
    assert_eq!(
        one("mtu", &with(|of| of.namenodes[0].large = Ok(false))).0,
        Bad
    );
}

#[test]
fn tcp() {
    let with = |name: &str, text: &str| {
        let mut facts = facts(Vec::new());
        let name = format!("/proc/sys/net/ipv4/{name}");
        facts.host.texts.add(name, Ok(text.to_owned()));
        facts
    };
    assert_eq!(
        one("congestion-control", &with("tcp_congestion_control", "bbr")).0,
        Slow
    );
    assert_eq!(one("tcp-windows", &with("tcp_window_scaling", "0")).0, Slow);
    assert_eq!(
        one("tcp-windows", &with("tcp_wmem", "4096\t16384\t65536")).0,
        Slow
    );
    let mut ports = with("ip_local_port_range", "1024\t65535");
    let at = |port| HostPort {
        host: "0.0.0.0".into(),
        port,
    };
    ports.subject.ports = vec![at(9866)];
    assert!(one("ports", &ports).2.starts_with("port 9866 is among"));
    ports.subject.ports = vec![at(9866), at(9867)];
    assert!(
        one("ports", &ports)
            .2
            .starts_with("ports 9866,9867 are among")
    );
    ports.host.texts.add(
        "/proc/sys/net/ipv4/ip_local_reserved_ports",
        Ok("9864-9867,50010".into()),
    );
    assert_eq!(said("ports", &ports), []);
}

#[test]
fn cards() {
    let with = |card| {
        let mut facts = facts(Vec::new());
        facts.host.cards = vec![card];
        said("network-card", &facts).len()
    };
    assert_eq!(with(card(&[("speed", "100"), ("duplex", "full")])), 1);
    assert_eq!(with(card(&[("speed", "1000"), ("duplex", "half")])), 1);
    let failing = [
        ("statistics/rx_packets", "1000000"),
        ("statistics/rx_errors", "5000"),
    ];
    assert_eq!(with(card(&failing)), 1);
    let emulated = |driver: &str, subsystem| CardFacts {
        drivers: vec![driver.to_owned()],
        pci: Some([0x8086, 0x100e, subsystem]),
        ..card(&[("speed", "1000"), ("duplex", "full")])
    };
    assert_eq!(with(emulated("e1000", 0x1af4)), 1);
    assert_eq!(with(emulated("e1000e", 0x1028)), 0, "a card of a server");
    assert_eq!(with(emulated("8139cp", 0x1af4)), 1);
    assert_eq!(with(emulated("virtio_net", 0x1af4)), 0);
}

#[test]
fn nodes_that_share_a_host() {
    // As a stock NameNode 3.5.0 has it, cut to what counts.
    let with_nodes = |nodes: &[(&str, &str)]| {
        let live = nodes.iter().enumerate().map(|(n, (address, rack))| {
            let node = json!({"infoAddr": "10.0.0.1:9864", "xferaddr": address, "location": rack,
                "lastContact": 1, "adminState": "In Service", "uuid": n.to_string()});
            (format!("host:{n}"), node)
        });
        let live = serde_json::Value::Object(live.collect()).to_string();
        with(|of| of.namenodes[0].info = Ok(json!({"LiveNodes": live})))
    };
    let flat = "/default-rack";
    let apart = [("10.0.0.1:9866", flat), ("10.0.0.2:9866", flat)];
    assert_eq!(said("shared-hosts", &with_nodes(&apart)), []);
    let mut shared = with_nodes(&[
        ("10.0.0.1:9866", flat),
        ("10.0.0.1:9867", flat),
        ("10.0.0.2:9866", flat),
    ]);
    assert_eq!(one("shared-hosts", &shared).0, Bad);
    let policy = "io.hayloft.placement.HayloftPlacementPolicy";
    shared.network.as_mut().expect("a network").namenodes[0].chooser = Some(policy.into());
    assert_eq!(said("shared-hosts", &shared), []);
    let racks = [
        ("10.0.0.1:9866", "/h1"),
        ("10.0.0.1:9867", "/h1"),
        ("10.0.0.2:9866", "/h2"),
    ];
    assert_eq!(said("shared-hosts", &with_nodes(&racks)), []);
    let partly = [
        ("10.0.0.1:9866", "/r1"),
        ("10.0.0.1:9867", "/r1"),
        ("10.0.0.2:9866", "/r1"),
        ("10.0.0.3:9866", "/r2"),
    ];
    assert_eq!(one("shared-hosts", &with_nodes(&partly)).0, Slow);
}
