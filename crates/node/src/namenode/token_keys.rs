//! Whether block tokens are on, and their keys, as NameNodes tell at the registration and in the
//! answers to heartbeats.

use hayloft_conf::{Configuration, keys};
use hayloft_wire::proto::hdfs_server::ExportedBlockKeys;

use super::actor_news::Actor;
use super::pool_service::PoolService;
use super::registration_checks::Namespace;
use crate::security::Disagreement;

/// Takes in what a NameNode said when it registered this node.
///
/// # Errors
/// Why this NameNode cannot be served. The pool has ended when it was served without tokens and
/// this NameNode has them on.
pub(super) fn at_registration(
    service: &PoolService,
    actor: &Actor,
    namespace: &Namespace,
    handed: &ExportedBlockKeys,
) -> Result<(), String> {
    let on = handed.is_block_token_enabled;
    service.end_for(unguarded(&actor.node.config.current(), on))?;
    agree(service, actor, on)?;
    let pool = &namespace.pool;
    if !on {
        if actor.node.config.get(&keys::BLOCK_ACCESS_TOKEN_ENABLE) {
            tracing::warn!(namenode = actor.address, %pool,
                "{} is true here and off at the NameNode: everyone gets blocks; turn it on there",
                keys::BLOCK_ACCESS_TOKEN_ENABLE.name());
        }
        return Ok(());
    }
    // One whose state is unknown counts as active, as with Apache's node.
    let tokens = &actor.node.tokens;
    let count = tokens.take_keys(pool, handed, !namespace.claims_standby)?;
    tracing::info!(
        namenode = actor.address, %pool, keys = count,
        "block tokens are checked; new ones of this node live {} s",
        handed.token_life_time / 1000
    );
    Ok(())
}

/// Takes in keys that came with the answer to a heartbeat.
///
/// # Errors
/// The pool has ended: it was served without tokens.
pub(super) fn in_heartbeat(
    service: &PoolService,
    actor: &Actor,
    handed: &ExportedBlockKeys,
) -> Result<(), String> {
    if !handed.is_block_token_enabled {
        return Ok(());
    }
    agree(service, actor, true)?;
    let Some(pool) = service.pool() else {
        return Ok(());
    };
    let from_active = service.is_active(actor.id);
    match actor.node.tokens.take_keys(&pool, handed, from_active) {
        Ok(count) => {
            tracing::debug!(namenode = actor.address, %pool, keys = count, from_active,
                "took new keys of block tokens");
        }
        // What is known goes on: tokens of other keys are refused.
        Err(reason) => {
            tracing::error!(namenode = actor.address, %pool, "keys of block tokens are not \
                taken: {reason}");
        }
    }
    Ok(())
}

/// Why a `NameNode` is not served that has tokens off where there is Kerberos. An honest one ends
/// by itself in that state, as Apache's does.
fn unguarded(config: &Configuration, on: bool) -> Option<String> {
    (config.has_kerberos() && !on).then(|| {
        format!(
            "it has block tokens off ({}) in a cluster with Kerberos: the block pool ends here, \
             nothing of it is served unprotected; turn them on there and start it again",
            keys::BLOCK_ACCESS_TOKEN_ENABLE.name()
        )
    })
}

fn agree(service: &PoolService, actor: &Actor, on: bool) -> Result<(), String> {
    match actor.node.tokens.agree(on) {
        Ok(()) => Ok(()),
        Err(Disagreement::On) => service.end_for(Some(
            "it has block tokens on (dfs.block.access.token.enable), and the first NameNode of \
             this node had them off: the block pool ends here, nothing of it is served \
             unprotected; turn them on, or off, on every NameNode of this node and start it again"
                .to_owned(),
        )),
        Err(Disagreement::Off) => Err(
            "it has block tokens off (dfs.block.access.token.enable), and the first NameNode of \
             this node had them on: it is not served; turn them on, or off, on every NameNode of \
             this node and start it again"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namenode_cannot_switch_tokens_off_where_there_is_kerberos() {
        let with = |how| {
            Configuration::from_properties([("hadoop.security.authentication", how)])
                .expect("valid")
        };
        assert!(unguarded(&with("kerberos"), false).is_some());
        assert_eq!(unguarded(&with("kerberos"), true), None);
        assert_eq!(unguarded(&with("simple"), false), None);
    }
}
