//! Addresses of their own for nodes and lifelines.

use crate::BLOCK;
use hayloft_testkit::error::Result;
use hayloft_testkit::node::Kind;
use hayloft_testkit::ports;
use hayloft_testkit::relay::Relay;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome};
use serde_json::json;

/// A NameNode with an RPC address for nodes only, which the node reaches by a network that can
/// stall, and one for lifelines.
pub fn own_addresses() -> Result<Addresses> {
    let service = ports::free()?;
    let lifeline = ports::free()?;
    let relay = Relay::to(ports::local(service))?;
    let node =
        NodeSpec::new(Kind::under_test()).conf("dfs.namenode.servicerpc-address", relay.address());
    let cluster = Cluster::builder("addresses")
        .node(node)
        .conf("dfs.replication", 1)
        .conf(
            "dfs.namenode.servicerpc-address",
            format!("127.0.0.1:{service}"),
        )
        .conf(
            "dfs.namenode.lifeline.rpc-address",
            format!("127.0.0.1:{lifeline}"),
        )
        .start()?;
    let fs = cluster.driver()?;
    Ok(Addresses {
        fs,
        cluster,
        relay,
        service,
        lifeline,
    })
}

/// See [`own_addresses`].
pub struct Addresses {
    fs: Driver,
    pub cluster: Cluster,
    relay: Relay,
    service: u16,
    lifeline: u16,
}

impl Addresses {
    pub fn for_nodes(&self) -> Result<Outcome> {
        self.fs.put("/there", BLOCK, 1, json!({}))?;
        self.fs.check("/there", BLOCK, 1)?;
        let bean = format!("RpcDetailedActivityForPort{}", self.service);
        // The NameNode's counters are read out every ten seconds.
        wait::until("heartbeats at the address for nodes", seconds(30), || {
            let count = self.cluster.namenode_bean(0, &bean)?["SendHeartbeatNumOps"].as_u64();
            Ok(match count {
                Some(1..) => Seen::Done(()),
                other => Seen::NotYet(format!("{other:?}")),
            })
        })?;
        // On time as they are, none has to be made up for.
        let bean = format!("RpcDetailedActivityForPort{}", self.lifeline);
        let bean = self.cluster.namenode_bean(0, &bean)?;
        expect(
            bean["SendLifelineNumOps"].as_u64().unwrap_or(0) == 0,
            || "a lifeline came although heartbeats were on time".to_owned(),
        )?;
        passed()
    }

    pub fn lifelines(&mut self) -> Result<Outcome> {
        self.relay.hold(true);
        // Without a sign of life a node is dead to this NameNode after 12 s.
        for _ in 0..25 {
            std::thread::sleep(seconds(1));
            let live = &self.cluster.namenode_bean(0, "FSNamesystemState")?["NumLiveDataNodes"];
            expect(*live == 1, || "dead for want of lifelines".to_owned())?;
        }
        let bean = format!("RpcDetailedActivityForPort{}", self.lifeline);
        wait::until("lifelines counted", seconds(30), || {
            let count = self.cluster.namenode_bean(0, &bean)?["SendLifelineNumOps"].as_u64();
            Ok(match count {
                Some(2..) => Seen::Done(()),
                other => Seen::NotYet(format!("{other:?}")),
            })
        })?;
        self.relay.hold(false);
        self.fs.put("/again", BLOCK, 2, json!({}))?;
        self.fs.check("/again", BLOCK, 2)?;
        self.cluster.node(0).process()?.check_alive()?;
        passed()
    }
}
