//! Taking over changed configuration files while the node runs (`dfsadmin -reconfig datanode`).
//!
//! One task at a time reads the files again, and puts each changed property that may change into
//! effect. It keeps what came of each for `... status`. A property that is refused keeps its old
//! value, so the next task finds it again.

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use hayloft_wire::proto::reconfiguration::{
    GetReconfigurationStatusConfigChange, GetReconfigurationStatusResponse,
};
use tracing::{Instrument as _, info, warn};

use super::host::Host;
use crate::store_config::volumes;
use hayloft_conf::{Change, DataDir, keys};
use hayloft_io::{locks::lock, told_if_broken};
use hayloft_rpc::server::fault::RpcFault;

/// The task, running or last run.
#[derive(Clone, Debug, Default)]
pub(super) struct Reconfiguration(Arc<Mutex<TaskStatus>>);

#[derive(Clone, Debug, Default)]
struct TaskStatus {
    /// Milliseconds since 1970; 0 before the first task.
    started_ms: i64,
    /// `None` while the task runs.
    ended_ms: Option<i64>,
    changes: Vec<GetReconfigurationStatusConfigChange>,
}

impl Reconfiguration {
    /// Starts a task in the background.
    ///
    /// # Errors
    /// When one is running.
    pub(super) fn start(&self, host: Arc<dyn Host>) -> Result<(), RpcFault> {
        {
            let mut status = lock(&self.0);
            if status.started_ms != 0 && status.ended_ms.is_none() {
                return Err(RpcFault::io("Another reconfiguration task is running."));
            }
            *status = TaskStatus {
                started_ms: now_ms(),
                ..TaskStatus::default()
            };
        }
        let shared = Arc::clone(&self.0);
        let changing = async move {
            // One that panics has ended, too: the next one may begin.
            let changes = told_if_broken("reconfiguration", reconfigure(host.as_ref())).await;
            let mut status = lock(&shared);
            status.changes = changes.unwrap_or_default();
            status.ended_ms = Some(now_ms());
        };
        tokio::spawn(changing.in_current_span());
        Ok(())
    }

    /// What became of the last task; start time 0 when there was none.
    pub(super) fn status(&self) -> GetReconfigurationStatusResponse {
        let status = lock(&self.0);
        GetReconfigurationStatusResponse {
            start_time: status.started_ms,
            end_time: status.ended_ms,
            changes: status.changes.clone(),
        }
    }
}

/// The properties that may change while the node runs.
pub(super) fn properties() -> Vec<String> {
    keys::reconfigurable().map(str::to_owned).collect()
}

async fn reconfigure(host: &dyn Host) -> Vec<GetReconfigurationStatusConfigChange> {
    let before = host.config().current();
    let shared = host.config().clone();
    // Reading files may take long; it must not hold up the network.
    let read = tokio::task::spawn_blocking(move || shared.changes()).await;
    let changes = match read {
        Ok(Ok(changes)) => changes,
        Ok(Err(error)) => {
            warn!(%error, "the configuration files cannot be taken over; nothing is changed");
            return Vec::new();
        }
        Err(error) => {
            warn!(%error, "reading the configuration files failed inside the node");
            return Vec::new();
        }
    };
    let mut outcomes = Vec::new();
    for change in changes {
        if !change.reconfigurable {
            info!(
                property = change.name,
                "a changed property takes effect at the next start only"
            );
            continue;
        }
        let outcome = apply(host, &change).await;
        match &outcome {
            Ok(()) => info!(
                property = change.name,
                old = change.old,
                new = change.new,
                "property reconfigured"
            ),
            Err(why) => warn!(property = change.name, why, "property not reconfigured"),
        }
        let new = host.config().current().text(&change.name);
        outcomes.push(GetReconfigurationStatusConfigChange {
            old_value: before.text(&change.name).unwrap_or_default(),
            new_value: change.new.clone().or(new),
            error_message: outcome.err(),
            name: change.name,
        });
    }
    outcomes
}

/// Puts one change into effect; an error says why not.
async fn apply(host: &dyn Host, change: &Change) -> Result<(), String> {
    if change.name == keys::DATA_DIRS.name() {
        return swap_volumes(host, change).await;
    }
    host.config()
        .apply(change)
        .map_err(|error| error.to_string())?;
    host.config_changed();
    Ok(())
}

/// Adds and removes volumes. Volumes that cannot be added are left out of the running
/// configuration; the others are taken, as Apache does it.
async fn swap_volumes(host: &dyn Host, change: &Change) -> Result<(), String> {
    let wanted = host
        .config()
        .current()
        .with(&change.name, change.new.as_deref())
        .map_err(|error| error.to_string())?;
    let dirs: Vec<DataDir> = wanted.get(&keys::DATA_DIRS);
    let asked = volumes(&wanted);
    let results = host.store().reconfigure_volumes(asked).await;
    let failed: Vec<_> = results
        .into_iter()
        .filter_map(|(path, result)| result.err().map(|error| (path, error)))
        .collect();
    let effective = if failed.is_empty() {
        change.clone()
    } else {
        let kept = dirs
            .iter()
            .filter(|dir| failed.iter().all(|(path, _)| *path != dir.path))
            .map(|dir| format!("[{}]{}", dir.storage_type, dir.path.display()))
            .collect::<Vec<_>>();
        Change {
            new: Some(kept.join(",")),
            ..change.clone()
        }
    };
    let applied = host.config().apply(&effective);
    host.config_changed();
    host.trigger_block_report(false, None);
    if let Err(error) = applied {
        return Err(error.to_string());
    }
    if failed.is_empty() {
        return Ok(());
    }
    let failed: Vec<_> = failed
        .into_iter()
        .map(
            |(path, error)| match dirs.iter().any(|dir| dir.path == path) {
                true => format!("FAILED TO ADD: {}: {error}", path.display()),
                false => error.to_string(),
            },
        )
        .collect();
    Err(failed.join("\n"))
}

fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_millis()).ok())
        .unwrap_or(1)
}
