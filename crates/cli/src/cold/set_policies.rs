//! Setting policies, and putting back what was: a bounded number of calls at once.

use std::sync::Arc;

use hayloft_rpc::RpcError;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::ask_namenode::{ActiveNameNode, refused};
use super::scan_listings;
use super::undo::ColdTarget;
use crate::error::CliError;

/// Calls under way at once. Each waits for the NameNode's journal, which takes several together.
const CALLS_MAX: usize = 8;
/// Failures that are told in full.
const TOLD_MAX: usize = 10;

/// What became of the targets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSums {
    /// Changed as asked.
    pub changed: u64,
    /// No longer there.
    pub missing: u64,
    /// Left alone: they do not have the policy any more that was set.
    pub left: u64,
    /// Refused by the NameNode.
    pub failed: u64,
    /// Why, for the first of those.
    pub failures: Vec<String>,
}

/// What is done with a target.
#[derive(Clone, Debug)]
pub enum PolicyChange {
    /// It is given the policy of that name.
    Set(String),
    /// What was there is put back, if it still has the policy of that number.
    PutBack(u8),
}

enum Done {
    Changed,
    Missing,
    Left,
    Failed(String),
}

/// Changes all `targets`. `told` hears how many are done.
///
/// # Errors
/// The NameNode does not answer any more, or a target cannot be read. What was changed before that
/// stays changed.
pub async fn change_all(
    namenode: &Arc<ActiveNameNode>,
    targets: impl Iterator<Item = Result<ColdTarget, CliError>>,
    change: &PolicyChange,
    told: &dyn Fn(u64),
) -> Result<ChangeSums, CliError> {
    let mut sums = ChangeSums::default();
    let mut under_way: JoinSet<Result<Done, CliError>> = JoinSet::new();
    let (mut targets, mut done) = (targets.fuse(), 0);
    loop {
        while under_way.len() < CALLS_MAX
            && let Some(target) = targets.next()
        {
            let (target, namenode, change) = (target?, Arc::clone(namenode), change.clone());
            under_way.spawn(async move { one(&namenode, &target, &change).await });
        }
        let Some(ended) = under_way.join_next().await else {
            return Ok(sums);
        };
        let ended = ended.map_err(|e| CliError::new(format!("a call ended: {e}"), "", ""))?;
        match ended? {
            Done::Changed => sums.changed += 1,
            Done::Missing => sums.missing += 1,
            Done::Left => sums.left += 1,
            Done::Failed(why) => {
                sums.failed += 1;
                if sums.failures.len() < TOLD_MAX {
                    sums.failures.push(why);
                }
            }
        }
        done += 1;
        told(done);
    }
}

async fn one(
    namenode: &ActiveNameNode,
    target: &ColdTarget,
    change: &PolicyChange,
) -> Result<Done, CliError> {
    let path = &target.path;
    let ended = match change {
        PolicyChange::Set(policy) => namenode.set_policy(path, Some(policy)).await,
        PolicyChange::PutBack(set) => match namenode.status(path).await {
            Ok(None) => return Ok(Done::Missing),
            Ok(Some(now)) if scan_listings::policy_of(&now) != *set => return Ok(Done::Left),
            Ok(Some(_)) => namenode.set_policy(path, target.before.as_deref()).await,
            Err(error) => Err(error),
        },
    };
    match ended {
        Ok(()) => Ok(Done::Changed),
        Err(error) if error.is_remote("FileNotFoundException") => Ok(Done::Missing),
        Err(error) if is_of_target(&error) => {
            Ok(Done::Failed(format!("{path}: {}", error.brief())))
        }
        Err(error) => Err(refused("change the storage policy", path, &error)),
    }
}

/// Whether the NameNode refused this one target; anything else stops the work.
fn is_of_target(error: &RpcError) -> bool {
    error.remote_class().is_some()
        && !error.is_standby()
        && !["SafeModeException", "RetriableException"]
            .iter()
            .any(|class| error.is_remote(class))
}
