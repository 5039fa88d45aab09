//! What happens to a secure cluster besides its files, with a stock NameNode and nodes that speak
//! SASL and HTTPS alone. [`swapped`]: `hayloft swap` on a node's host. [`failover`]: two NameNodes
//! that change places. [`swebhdfs`]: files over HTTPS, for holders of delegation tokens.
//! [`credentials`]: a keystore's password in a store of Hadoop's. [`clocks`]: a clock that is
//! wrong. [`privileged`]: root starts a node on ports below 1024.
//!
//! Kerberos itself is the matter of the suite `kerberos`.

#[path = "../saslport/by_curl.rs"]
mod by_curl;
mod clocks;
mod credentials;
mod failover;
#[path = "../packages/hadoop_shell.rs"]
mod hadoop_shell;
#[path = "../kerberos/in_realm.rs"]
mod in_realm;
#[path = "../ha/pair.rs"]
mod pair;
mod privileged;
#[path = "../packages/shell_host.rs"]
mod shell_host;
mod swapped;
mod swebhdfs;
#[path = "../kerberos/web_tokens.rs"]
mod web_tokens;

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop_conf::Conf;
use hayloft_testkit::node::Kind;
use hayloft_testkit::realm::Realm;
use hayloft_testkit::tls_stores::TlsStores;
use hayloft_testkit::{ClusterBuilder, NodeSpec, TestkitError, ports};
use in_realm::{BLOCK, at_localhost, realm, secure};
use std::process::ExitCode;

/// Nodes of ours beside two NameNodes.
const NODES: usize = 3;

fn main() -> ExitCode {
    in_realm::suite("secure", |suite| {
        swapped::cases(suite);
        failover::cases(suite);
        swebhdfs::cases(suite);
        credentials::cases(suite);
        clocks::cases(suite);
        privileged::cases(suite);
        Ok(())
    })
}

/// A secure cluster whose data is encrypted, with keys for HTTPS.
fn encrypted(realm: &Realm) -> Result<(ClusterBuilder, TlsStores)> {
    let dir = realm.dir().join("tls");
    let stores = TlsStores::at(&dir);
    if !stores.certificate().is_file() {
        std::fs::create_dir_all(&dir).map_err(TestkitError::file("making", &dir))?;
        stores.make()?;
    }
    let mut builder = secure(realm, "privacy")?
        .conf("dfs.data.transfer.protection", "privacy")
        .conf(
            "dfs.encrypt.data.transfer.cipher.suites",
            "AES/CTR/NoPadding",
        );
    let mut keys = Conf::new();
    stores.configure(&mut keys);
    for (key, value) in keys.iter() {
        builder = builder.conf(key, value);
    }
    Ok((builder, stores))
}

/// A node whose pages come over HTTPS alone, as Apache's demands it beside SASL; and its port.
fn over_https(kind: Kind) -> Result<(NodeSpec, u16)> {
    let port = ports::free()?;
    let spec = NodeSpec::new(kind)
        .conf("dfs.http.policy", "HTTPS_ONLY")
        .conf("dfs.datanode.https.address", format!("127.0.0.1:{port}"))
        .conf("ignore.secure.ports.for.testing", false);
    Ok((spec, port))
}
