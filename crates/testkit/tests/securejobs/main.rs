//! Whole programs on a secure cluster: Kerberos, block tokens and protected data transfer, with a
//! stock NameNode. [`hbase`]: HBase with each of its two kinds of write-ahead log. [`clients`]:
//! Spark and hdfs-native. [`mapreduce`]: jobs on a secure YARN.
//!
//! `jobs` has such programs on a cluster that protects nothing.

mod clients;
mod hbase;
mod hbase_server;
#[path = "../kerberos/in_realm.rs"]
mod in_realm;
mod mapreduce;
#[path = "../jobs/programs.rs"]
mod programs;

use hayloft_testkit::ClusterBuilder;
use hayloft_testkit::error::Result;
use hayloft_testkit::realm::Realm;
use in_realm::{at_localhost, realm, secure};
use std::process::ExitCode;

const PROTECTION: &str = "dfs.data.transfer.protection";
const SUITES: &str = "dfs.encrypt.data.transfer.cipher.suites";

fn main() -> ExitCode {
    in_realm::suite("securejobs", |suite| {
        hbase::cases(suite);
        clients::cases(suite);
        mapreduce::cases(suite);
        Ok(())
    })
}

/// How data transfer is protected: a name for cases, and keys.
#[derive(Clone, Copy)]
struct Protection {
    name: &'static str,
    /// Whether SASL makes messages of data, which HBase's own client has to open.
    has_messages: bool,
    keys: &'static [(&'static str, &'static str)],
}

const AUTHENTICATION: Protection = Protection {
    name: "authentication",
    has_messages: false,
    keys: &[(PROTECTION, "authentication")],
};
const INTEGRITY: Protection = Protection {
    name: "integrity",
    has_messages: true,
    keys: &[(PROTECTION, "integrity")],
};
const PRIVACY: Protection = Protection {
    name: "privacy",
    has_messages: true,
    keys: &[(PROTECTION, "privacy")],
};
const AES: Protection = Protection {
    name: "aes",
    has_messages: false,
    keys: &[(PROTECTION, "privacy"), (SUITES, "AES/CTR/NoPadding")],
};

/// A secure cluster whose RPC and data transfer are protected so.
fn protected(realm: &Realm, protection: Protection) -> Result<ClusterBuilder> {
    let groups = "hdfs=supergroup;nn=supergroup;dn=users;hbase=users;yarn=users;root=users";
    let mut builder = secure(realm, "privacy")?
        .conf("dfs.replication", 3)
        .conf("hadoop.user.group.static.mapping.overrides", groups);
    for (key, value) in protection.keys {
        builder = builder.conf(key, value);
    }
    Ok(builder)
}
