//! Data transfer that block tokens protect: stock clients, nodes of ours and of Apache's, each
//! protection.

use hayloft_testkit::error::Result;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{passed, seconds};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite};
use serde_json::json;

use crate::{BLOCK, realm, secure};
use hayloft_testkit::realm::Realm;

const PROTECTION: &str = "dfs.data.transfer.protection";
const SUITES: &str = "dfs.encrypt.data.transfer.cipher.suites";

/// A protection's name here, and the keys that ask for it.
const PROTECTIONS: [(&str, &[(&str, &str)]); 4] = [
    ("auth", &[(PROTECTION, "authentication")]),
    ("integrity", &[(PROTECTION, "integrity")]),
    ("privacy", &[(PROTECTION, "privacy")]),
    (
        "aes",
        &[(PROTECTION, "privacy"), (SUITES, "AES/CTR/NoPadding")],
    ),
];

/// Nodes of ours; one of Apache's comes behind them.
const OURS: usize = 3;

pub fn cases(suite: &mut Suite) {
    for (protection, keys) in PROTECTIONS {
        let name = |what: &str| format!("{what}_{protection}");
        let mut on = suite.group(
            move || Protected::start(keys),
            |lab, failed| lab.cluster.conclude(failed),
        );
        on.case(name("protected_files_are_written_and_read"), |lab| {
            lab.files()
        });
        on.case(name("protected_blocks_of_a_dead_node_are_copied"), |lab| {
            lab.re_replication()
        });
        on.case(name("leases_are_recovered_behind_protection"), |lab| {
            lab.recovery()
        });
    }
}

struct Protected {
    cluster: Cluster,
    fs: Driver,
    _realm: Realm,
}

impl Protected {
    fn start(keys: &[(&str, &str)]) -> Result<Self> {
        let realm = realm()?;
        let mut builder = secure(&realm, "authentication")?
            .nodes(OURS, Kind::Hayloft)
            .nodes(1, Kind::Apache);
        for (key, value) in keys {
            builder = builder.conf(key, value);
        }
        let cluster = builder.start()?;
        let fs = cluster.driver()?;
        Ok(Self {
            cluster,
            fs,
            _realm: realm,
        })
    }

    fn files(&mut self) -> Result<Outcome> {
        for seed in 0..6 {
            let path = format!("/file-{seed}");
            self.fs.put(&path, 2 * BLOCK + 777, seed, json!({}))?;
            self.fs.check(&path, 2 * BLOCK + 777, seed)?;
            self.fs.put(&path, BLOCK, seed, json!({"appendTo": true}))?;
            self.fs.wait_replicas(&path, 3, seconds(60))?;
            self.fs.check(&path, 3 * BLOCK + 777, seed)?;
        }
        passed()
    }

    fn re_replication(&mut self) -> Result<Outcome> {
        self.fs.put("/copied", 4 * BLOCK, 31, json!({}))?;
        self.fs.wait_replicas("/copied", 3, seconds(60))?;
        for victim in [0, OURS] {
            self.cluster.node(victim).kill()?;
            self.cluster.namenode(0).wait_live(OURS, seconds(60))?;
            self.fs.wait_replicas("/copied", 3, seconds(120))?;
            self.fs.check("/copied", 4 * BLOCK, 31)?;
            self.cluster.heal()?;
        }
        passed()
    }

    fn recovery(&mut self) -> Result<Outcome> {
        for seed in 0..3 {
            let path = format!("/dead-{seed}");
            self.fs.create("d", &path, seed, json!({}))?;
            self.fs.write("d", BLOCK / 2)?;
            self.fs.handle("hflush", "d")?;
            self.fs.handle("abandon", "d")?;
            self.fs.recover_lease(&path, seconds(60))?;
            self.fs.check(&path, BLOCK / 2, seed)?;
        }
        passed()
    }
}
