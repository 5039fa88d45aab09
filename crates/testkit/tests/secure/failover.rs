//! Two NameNodes of a secure realm that change places: the work of the suite `ha`, and tokens of
//! each while the other is active.

use hayloft_testkit::error::Result;
use hayloft_testkit::node::Kind;
use hayloft_testkit::realm::Realm;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::{Outcome, Suite};
use serde_json::json;

use crate::pair::Pair;
use crate::{BLOCK, NODES, encrypted, over_https, realm};

pub fn cases(suite: &mut Suite) {
    let mut on = suite.group(SecurePair::start, |lab, failed| {
        lab.pair.cluster.conclude(failed);
    });
    on.case("secure_ha_write_and_read", |lab| lab.pair.plain());
    on.case("secure_ha_failover_during_writes", |lab| {
        lab.pair.failover_during_writes()
    });
    on.case("secure_ha_tokens_of_both_namenodes", |lab| {
        lab.tokens_of_both()
    });
    on.case("secure_ha_active_killed_during_writes", |lab| {
        lab.pair.active_killed()
    });
    on.case("secure_ha_standby_knows_every_block", |lab| {
        lab.pair.standby_knows()
    });
    on.case("secure_ha_copies_and_deletes_follow_the_active", |lab| {
        lab.pair.commands_follow()
    });
    on.case("secure_ha_node_restarted_beside_one_namenode", |lab| {
        lab.pair.node_restarted()
    });
    on.case("secure_ha_observer_has_every_block", |lab| {
        lab.pair.observer()
    });
    on.case("secure_ha_no_good_token_was_refused", |lab| lab.unrefused());
}

struct SecurePair {
    pair: Pair,
    _realm: Realm,
}

impl SecurePair {
    /// All nodes but the last are ours.
    fn start() -> Result<Self> {
        let realm = realm()?;
        let (mut builder, _) = encrypted(&realm)?;
        for node in 1..=NODES {
            let kind = if node < NODES {
                Kind::Hayloft
            } else {
                Kind::Apache
            };
            builder = builder.node(over_https(kind)?.0);
        }
        let pair = Pair::start(builder)?;
        Ok(Self {
            pair,
            _realm: realm,
        })
    }

    /// A reader and a writer hold tokens of one NameNode while the other is active, and go on.
    fn tokens_of_both(&mut self) -> Result<Outcome> {
        let pair = &mut self.pair;
        let blocks = 8;
        pair.fs.put("/of-both", blocks * BLOCK, 21, json!({}))?;
        // Half a minute, whichever node is read: Apache's sends 4 KiB at a time under SASL.
        let read = json!({"path": "/of-both", "seed": 21, "buffer": 65_536, "pauseMillis": 250});
        let reading = pair.fs.begin("read", read)?;
        pair.fs.create("t", "/of-both-writer", 22, json!({}))?;
        let total = 6 * BLOCK;
        let write = json!({"handle": "t", "bytes": total, "chunk": 65_536, "pauseMillis": 250});
        let writing = pair.fs.begin("loop", write)?;
        for (from, to, acked) in [("nn2", "nn1", 2), ("nn1", "nn2", 4)] {
            pair.fs.wait_acked("t", acked * BLOCK)?;
            pair.switch(from, to)?;
            let path = format!("/by-{to}");
            pair.fs.put(&path, 2 * BLOCK + 1, 23, json!({}))?;
            pair.fs.check(&path, 2 * BLOCK + 1, 23)?;
            // Blocks that the other NameNode placed, by tokens of this one.
            pair.fs.check("/plain", 3 * BLOCK + 1, 1)?;
        }
        let end = writing.wait_at_most(seconds(200))?;
        expect(end["failure"].is_null() && end["acked"] == total, || {
            end.to_string()
        })?;
        pair.fs.handle("close", "t")?;
        pair.fs.check("/of-both-writer", total, 22)?;
        let end = reading.wait_at_most(seconds(200))?;
        expect_eq("first wrong byte", end["mismatch"].as_i64(), Some(-1))?;
        expect_eq("bytes read", end["bytes"].as_u64(), Some(blocks * BLOCK))?;
        passed()
    }

    fn unrefused(&mut self) -> Result<Outcome> {
        let cluster = &self.pair.cluster;
        let ours = cluster.nodes().filter(|node| node.kind() == Kind::Hayloft);
        for node in ours {
            let log = std::fs::read_to_string(node.log()).unwrap_or_default();
            expect(log.contains("logged in with Kerberos"), || {
                format!("{} has no log", node.name())
            })?;
            let refused = log.lines().find(|line| {
                line.contains("block token verification failed") || line.contains(" ERROR ")
            });
            expect(refused.is_none(), || format!("{refused:?}"))?;
        }
        passed()
    }
}
