//! Setting policies, and putting back what was: a bounded number of calls at once.

use std::sync::Arc;

use hayloft_rpc::RpcError;
use hayloft_wire::proto::file_status::{FileType, HdfsFileStatus};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::age::Cutoff;
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
    /// Left alone: they are not any more what they were to be, or inherit the policy that was set.
    pub left: u64,
    /// Refused by the NameNode.
    pub failed: u64,
    /// Why, for the first of those.
    pub failures: Vec<String>,
    /// Paths of all that were not changed.
    #[serde(skip)]
    pub unchanged: Vec<String>,
}

/// What is done with a target.
#[derive(Clone, Debug)]
pub enum PolicyChange {
    /// It is given the policy of that name.
    Set(String),
    /// The same, if it still has the policy that the scan saw and was not used since the cutoff.
    SetIfCold(String, Cutoff),
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
    let mut under_way: JoinSet<Result<(String, Done), CliError>> = JoinSet::new();
    let (mut targets, mut done) = (targets.fuse(), 0);
    loop {
        while under_way.len() < CALLS_MAX
            && let Some(target) = targets.next()
        {
            let (target, namenode, change) = (target?, Arc::clone(namenode), change.clone());
            under_way.spawn(async move {
                let done = one(&namenode, &target, &change).await?;
                Ok((target.path, done))
            });
        }
        let Some(ended) = under_way.join_next().await else {
            return Ok(sums);
        };
        let ended = ended.map_err(|e| CliError::new(format!("a call ended: {e}"), "", ""))?;
        let (path, ended) = ended?;
        if !matches!(ended, Done::Changed) {
            sums.unchanged.push(path);
        }
        match ended {
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
        PolicyChange::Set(policy) => {
            let set = namenode.set_policy(path, Some(policy)).await;
            set.map(|()| Done::Changed)
        }
        PolicyChange::SetIfCold(policy, cutoff) => {
            set_if_cold(namenode, target, policy, cutoff).await
        }
        PolicyChange::PutBack(set) => put_back(namenode, target, *set).await,
    };
    match ended {
        Ok(done) => Ok(done),
        Err(error) if error.is_remote("FileNotFoundException") => Ok(Done::Missing),
        Err(error) if is_of_target(&error) => {
            Ok(Done::Failed(format!("{path}: {}", error.brief())))
        }
        Err(error) => Err(refused("change the storage policy", path, &error)),
    }
}

async fn set_if_cold(
    namenode: &ActiveNameNode,
    target: &ColdTarget,
    policy: &str,
    cutoff: &Cutoff,
) -> Result<Done, RpcError> {
    match namenode.status(&target.path).await? {
        None => Ok(Done::Missing),
        Some(now) if !is_as_seen(target, &now, cutoff) => Ok(Done::Left),
        Some(_) => {
            namenode.set_policy(&target.path, Some(policy)).await?;
            Ok(Done::Changed)
        }
    }
}

/// Whether a target is still what the scan saw, and cold. Of a directory this tells only whether
/// names were added or removed.
fn is_as_seen(target: &ColdTarget, now: &HdfsFileStatus, cutoff: &Cutoff) -> bool {
    let found = scan_listings::scanned(now);
    let (kind, cold) = if target.directory {
        (FileType::IsDir, found.modified_ms < cutoff.at_ms)
    } else {
        let cold = cutoff.is_cold(found.modified_ms, found.accessed_ms);
        (FileType::IsFile, cold)
    };
    // Asked by itself, a striped file says 0 of a policy that it does not follow.
    let follows_none = now.ec_policy.is_some() && !target.directory && found.policy == 0;
    let same = target.seen_policy.is_none_or(|seen| seen == found.policy) || follows_none;
    now.file_type() == kind && cold && same
}

async fn put_back(
    namenode: &ActiveNameNode,
    target: &ColdTarget,
    set: u8,
) -> Result<Done, RpcError> {
    let path = &target.path;
    let Some(now) = namenode.status(path).await? else {
        return Ok(Done::Missing);
    };
    if scan_listings::policy_of(&now) != set {
        return Ok(Done::Left);
    }
    namenode.set_policy(path, target.before.as_deref()).await?;
    // What it inherits may be the same.
    let now = match target.before {
        Some(_) => None,
        None => namenode.status(path).await?,
    };
    let inherits = now.is_some_and(|now| scan_listings::policy_of(&now) == set);
    Ok(if inherits { Done::Left } else { Done::Changed })
}

/// Whether the NameNode refused this one target; anything else stops the work.
fn is_of_target(error: &RpcError) -> bool {
    error.remote_class().is_some()
        && !error.is_standby()
        && !["SafeModeException", "RetriableException"]
            .iter()
            .any(|class| error.is_remote(class))
}

#[cfg(test)]
mod tests {
    use super::super::age::ColdBy;
    use super::*;

    #[test]
    fn what_changed_since_the_scan_is_not_as_seen() {
        let cutoff = Cutoff {
            at_ms: 10,
            by: ColdBy::Access,
        };
        let status = |kind: FileType, modified_ms, accessed_ms, policy| HdfsFileStatus {
            file_type: kind.into(),
            modification_time: modified_ms,
            access_time: accessed_ms,
            storage_policy: Some(policy),
            ..HdfsFileStatus::default()
        };
        let (dir, file) = (FileType::IsDir, FileType::IsFile);
        for (directory, now, is) in [
            (true, status(dir, 9, 0, 7), true),
            (true, status(dir, 10, 0, 7), false),
            (true, status(dir, 9, 0, 12), false),
            (true, status(file, 9, 0, 7), false),
            (false, status(file, 9, 9, 7), true),
            (false, status(file, 9, 10, 7), false),
            (false, status(file, 10, 9, 7), false),
            (false, status(file, 9, 9, 2), false),
        ] {
            let target = ColdTarget {
                path: "/a".to_owned(),
                directory,
                before: None,
                seen_policy: Some(7),
            };
            assert_eq!(is_as_seen(&target, &now, &cutoff), is, "{now:?}");
        }
    }
}
