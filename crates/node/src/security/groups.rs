//! The groups of users.
//!
//! They come from the system's user database through `id`, as Hadoop's default mapping does it. So
//! every source that the machine knows (files, LDAP, SSSD) counts. Answers are kept for a while.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tracing::warn;

use hayloft_conf::{Configuration, SharedConfig, keys};
use hayloft_io::locks::lock;
use hayloft_rpc::log_limit::words;

/// Users whose groups are kept.
const GROUPS_KEPT: usize = 1024;
/// How long the user database may take.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Knows the groups of users.
#[derive(Debug)]
pub(crate) struct UserGroups {
    config: SharedConfig,
    kept: Mutex<HashMap<String, (Instant, Vec<String>)>>,
    /// One look-up at a time: a slow user database must not use up all threads.
    lookup: Semaphore,
}

impl UserGroups {
    pub(crate) fn new(config: SharedConfig) -> Self {
        Self {
            config,
            kept: Mutex::default(),
            lookup: Semaphore::new(1),
        }
    }

    /// The groups of a user, by its short name. One that cannot be looked up is in none.
    pub(crate) async fn of(&self, user: &str) -> Vec<String> {
        self.if_told(user).await.unwrap_or_default()
    }

    /// As [`of`](Self::of); `None` when the user database does not tell. That is not kept.
    pub(crate) async fn if_told(&self, user: &str) -> Option<Vec<String>> {
        if let Some(groups) = static_groups(&self.config.current(), user) {
            return Some(groups);
        }
        if let Some(groups) = self.known(user) {
            return Some(groups);
        }
        let _one_at_a_time = self.lookup.acquire().await;
        if let Some(groups) = self.known(user) {
            return Some(groups);
        }
        let name = user.to_owned();
        let found = tokio::task::spawn_blocking(move || look_up(&name));
        let found = tokio::time::timeout(LOOKUP_TIMEOUT, found).await;
        let Some(groups) = found.ok().and_then(Result::ok).flatten() else {
            warn!(
                user = words(user),
                "the user database does not tell the groups of a user"
            );
            return None;
        };
        let mut kept = lock(&self.kept);
        if kept.len() >= GROUPS_KEPT {
            kept.clear();
        }
        kept.insert(user.to_owned(), (Instant::now(), groups.clone()));
        Some(groups)
    }

    fn known(&self, user: &str) -> Option<Vec<String>> {
        let kept = lock(&self.kept);
        let (since, groups) = kept.get(user)?;
        let believed: Duration = self.config.get(&keys::GROUPS_CACHE);
        (since.elapsed() < believed).then(|| groups.clone())
    }
}

fn static_groups(config: &Configuration, user: &str) -> Option<Vec<String>> {
    let overrides = config.get(&keys::STATIC_GROUPS);
    overrides.split(';').find_map(|entry| {
        let (name, groups) = entry.split_once('=').unwrap_or((entry, ""));
        (!name.trim().is_empty() && name.trim() == user).then(|| {
            groups
                .split(',')
                .map(|group| group.trim().to_owned())
                .filter(|group| !group.is_empty())
                .collect()
        })
    })
}

/// The groups of a user, none of one that the system does not know. `None`: it cannot be asked.
fn look_up(user: &str) -> Option<Vec<String>> {
    if user.is_empty() || user.starts_with('-') || user.contains('\0') {
        return Some(Vec::new());
    }
    let output = Command::new("id")
        .args(["-Gn", "--", user])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            Some(text.split_whitespace().map(str::to_owned).collect())
        }
        Ok(_) => Some(Vec::new()),
        Err(error) => {
            warn!(%error, "cannot run 'id', which tells the groups of users");
            None
        }
    }
}
