//! Data transfer that block tokens protect: stock clients, nodes of ours and of Apache's, each
//! protection.

use hayloft_testkit::error::Result;
use hayloft_testkit::node::Kind;
use hayloft_testkit::shared_work::SharedWork;
use hayloft_testkit::{Cluster, Driver, Suite};

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
            lab.work().passes(|work| work.files(6, 2))
        });
        on.case(name("protected_blocks_of_a_dead_node_are_copied"), |lab| {
            lab.work().passes(|work| work.deaths(&[0, OURS]))
        });
        on.case(name("leases_are_recovered_behind_protection"), |lab| {
            lab.work().passes(|work| work.leases())
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

    fn work(&mut self) -> SharedWork<'_> {
        SharedWork {
            cluster: &mut self.cluster,
            fs: &self.fs,
            block: BLOCK,
        }
    }
}
