//! A protected cluster at work: Kerberos, block tokens, and data that AES encrypts. [`used`]: what
//! operators and clients do with it, beside a stock node. [`secrets`]: what no node may say.
//! [`parity`]: virtual nodes with parity over their disks. [`outage`]: a quarter of an hour with
//! tickets of two minutes and keys of one, and no KDC for ten minutes of it.

#[path = "../kerberos/in_realm.rs"]
mod in_realm;
mod outage;
#[path = "../supernode/parity.rs"]
mod parity;
mod secrets;
mod used;

use hayloft_testkit::ClusterBuilder;
use hayloft_testkit::error::Result;
use hayloft_testkit::mounts::in_own_namespace;
use hayloft_testkit::realm::Realm;
use in_realm::{BLOCK, realm, secure};
use std::net::Ipv4Addr;
use std::process::ExitCode;

/// Virtual nodes of a host.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn main() -> ExitCode {
    in_own_namespace();
    in_realm::suite("protected", |suite| {
        if suite.may_mount_disks("protected_cluster_in_use") {
            used::cases(suite);
            let mut on = suite.group(
                || {
                    let realm = realm()?;
                    Ok((parity::start_of(encrypted(&realm)?)?, realm))
                },
                |(lab, _), failed| lab.cluster.conclude(failed),
            );
            on.case("protected_parity_outlives_a_node_and_a_disk", |lab| {
                lab.0.one_ends()
            });
            on.case("protected_parity_tells_what_is_lost", |lab| lab.0.damaged());
        }
        outage::cases(suite);
        Ok(())
    })
}

/// A secure cluster whose RPC and data are encrypted.
fn encrypted(realm: &Realm) -> Result<ClusterBuilder> {
    Ok(secure(realm, "privacy")?
        .conf("dfs.data.transfer.protection", "privacy")
        .conf(
            "dfs.encrypt.data.transfer.cipher.suites",
            "AES/CTR/NoPadding",
        ))
}

/// The address of a virtual node of the only host.
fn address(_host: usize, node: usize) -> Result<Ipv4Addr> {
    let last = u8::try_from(node + 1).unwrap_or(u8::MAX);
    Ok(Ipv4Addr::new(127, 0, 8, last))
}
