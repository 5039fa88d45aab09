//! Who is at work on a node's snapshots, so that none harms another.
//!
//! A snapshot that is being taken counts on objects that no manifest names yet, and one that prunes
//! removes such objects. So each leaves an object in the folder `running`, and then looks for those
//! of others. Whichever came second sees the first, because a store lists what was written before.
//! One that prunes gives way; one that takes a snapshot, or reads one, waits. Several of these may
//! be at work at once: they write the same objects with the same bytes.
//!
//! A claim is written anew every minute. One that was not for ten belongs to a process that was
//! killed. The next process that finds it removes it, and one that finds its own removed gives
//! up. Ages are differences between two times of the store, so that no clock of a host counts.

use std::time::Duration;

use bytes::Bytes;
use hayloft_io::locks;
use opendal::ErrorKind;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use crate::catalog::{choose, manifest, names_below};
use crate::error::{SnapshotError, SnapshotErrorKind};
use crate::manifest::Manifest;
use crate::names::{RUNNING, folder};
use crate::target::Target;

/// How often a claim is written anew.
const AGAIN: Duration = Duration::from_secs(60);
/// A claim of this age belongs to a process that was killed.
const DEAD: Duration = Duration::from_secs(600);
/// How long a snapshot waits for one that prunes, and how often it looks.
const WAIT: Duration = Duration::from_secs(900);
const LOOK: Duration = Duration::from_millis(500);

/// What is done under a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimFor {
    /// A snapshot is taken.
    Create,
    /// A snapshot is read, which must stay until then.
    Read,
    /// Snapshots and objects are removed.
    Prune,
}

impl ClaimFor {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Read => "read",
            Self::Prune => "prune",
        }
    }
}

/// A snapshot that is read, whole.
#[derive(Debug)]
pub struct ChosenSnapshot {
    /// Uuid of its node.
    pub node: String,
    /// Its name.
    pub snapshot: String,
    /// What it consists of.
    pub manifest: Manifest,
}

/// A claim of this process.
#[derive(Debug)]
pub struct Claim {
    target: Target,
    node: String,
    path: String,
    /// Cancelled when the claim could not be written for so long that others take it for dead.
    lost: CancellationToken,
    _again: AbortOnDropHandle<()>,
}

impl Claim {
    /// Claims the work on a node's snapshots.
    ///
    /// # Errors
    /// Others are at work that this must not disturb; of the store.
    pub async fn take(target: &Target, node: &str, work: ClaimFor) -> Result<Self, SnapshotError> {
        let random = uuid::Uuid::new_v4().simple();
        let path = format!("{}{}-{random}", folder(node, RUNNING), work.name());
        locks::lock(&target.claims).push(path.clone());
        write(target, &path).await?;
        let lost = CancellationToken::new();
        let again = tokio::spawn(keep(target.clone(), path.clone(), lost.clone()));
        let claim = Self {
            target: target.clone(),
            node: node.to_owned(),
            path,
            lost,
            _again: AbortOnDropHandle::new(again),
        };
        let (began, mut told) = (tokio::time::Instant::now(), false);
        loop {
            let others = claim.others().await;
            let others = match others {
                Ok(others) => others,
                Err(error) => {
                    claim.release().await;
                    return Err(error);
                }
            };
            let in_the_way = match work {
                // A snapshot, of which nothing may be removed; or one that prunes too.
                ClaimFor::Prune => others.first(),
                _ => others.iter().find(|name| name.starts_with("prune-")),
            };
            let Some(other) = in_the_way else {
                return Ok(claim);
            };
            if work == ClaimFor::Prune || began.elapsed() > WAIT {
                let refused = claim.refused(other);
                claim.release().await;
                return Err(refused);
            }
            if !std::mem::replace(&mut told, true) {
                warn!("waits for a process that prunes the snapshots of {node}: {other}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Does a work with the snapshot that is meant, which stays until then. Where no claim can be
    /// written it goes on without: a store that is full or may only be read is of use, too.
    ///
    /// # Errors
    /// Those of the work; there is no such snapshot, or it cannot be read; a process prunes, and
    /// does not end.
    pub async fn reading<T, W>(
        target: &Target,
        (node, snapshot): (Option<&str>, Option<&str>),
        work: impl FnOnce(ChosenSnapshot) -> W,
    ) -> Result<T, SnapshotError>
    where
        W: Future<Output = Result<T, SnapshotError>>,
    {
        let (node, snapshot) = choose(target, node, snapshot).await?;
        let claim = match Self::take(target, &node, ClaimFor::Read).await {
            Ok(claim) => Some(claim),
            Err(error) if error.kind() == SnapshotErrorKind::Environment => {
                warn!("no prune gives way to what is read here, so do not prune: {error}");
                None
            }
            Err(error) => return Err(error),
        };
        let done = async {
            let manifest = manifest(target, &node, &snapshot).await?;
            let chosen = ChosenSnapshot {
                node,
                snapshot,
                manifest,
            };
            work(chosen).await
        };
        let done = done.await;
        if let Some(claim) = claim {
            claim.release().await;
        }
        done
    }

    fn refused(&self, other: &str) -> SnapshotError {
        let minutes = DEAD.as_secs() / 60;
        SnapshotError::at_work(
            self.target
                .at(&format!("{}{other}", folder(&self.node, RUNNING))),
            format!(
                "run the command when it has ended; if it was killed, this takes {minutes} min \
                 to show"
            ),
        )
    }

    /// The claims of others that are at work; dead ones are removed.
    async fn others(&self) -> Result<Vec<String>, SnapshotError> {
        let dir = folder(&self.node, RUNNING);
        let own = self.age_base().await?;
        let mut others = Vec::new();
        for name in names_below(&self.target, &dir).await? {
            let path = format!("{dir}{name}");
            if path == self.path || name.ends_with('/') {
                continue;
            }
            match modified(&self.target, &path).await? {
                None => {}
                Some(Some(at)) if own.is_some_and(|own| own - at > seconds(DEAD)) => {
                    warn!(claim = %self.target.at(&path), "a process that worked on snapshots was \
                        killed: its claim is removed");
                    self.target.remove(vec![path]).await?;
                }
                Some(_) => others.push(name),
            }
        }
        Ok(others)
    }

    /// The time of the store when this claim was written last.
    async fn age_base(&self) -> Result<Option<i64>, SnapshotError> {
        match modified(&self.target, &self.path).await? {
            Some(at) => Ok(at),
            None => Err(self.gone()),
        }
    }

    fn gone(&self) -> SnapshotError {
        SnapshotError::finding(
            "another process took this one for dead, and may have removed objects",
            self.target.at(&self.path),
            "run the command again: it goes on where it was",
        )
    }

    /// Whether the claim still stands: no other has removed what this work counts on.
    ///
    /// # Errors
    /// It does not; of the store.
    pub async fn stands(&self) -> Result<(), SnapshotError> {
        if self.lost.is_cancelled() {
            return Err(self.gone());
        }
        self.age_base().await.map(|_| ())
    }

    /// Gives the claim up. One that cannot be removed is dead after a while.
    pub async fn release(self) {
        let (target, path) = (self.target.clone(), self.path.clone());
        // First, so that it is not written once more.
        drop(self);
        locks::lock(&target.claims).retain(|of| *of != path);
        if let Err(error) = target.remove(vec![path]).await {
            warn!("{error}");
        }
    }
}

fn seconds(of: Duration) -> i64 {
    i64::try_from(of.as_secs()).unwrap_or(i64::MAX)
}

async fn write(target: &Target, path: &str) -> Result<(), SnapshotError> {
    let note = format!("process {}\n", std::process::id());
    target.write(path, Bytes::from(note)).await
}

/// Writes a claim anew until it is dropped. A claim that is gone stays gone.
async fn keep(target: Target, path: String, lost: CancellationToken) {
    let mut written = tokio::time::Instant::now();
    loop {
        tokio::time::sleep(AGAIN).await;
        if written.elapsed() > DEAD / 2 || matches!(modified(&target, &path).await, Ok(None)) {
            lost.cancel();
            return;
        }
        match write(&target, &path).await {
            Ok(()) => written = tokio::time::Instant::now(),
            Err(error) => warn!("{error}"),
        }
    }
}

/// When an object was written, in seconds of the store's time, as far as it says; `None` when there
/// is no such object.
async fn modified(target: &Target, path: &str) -> Result<Option<Option<i64>>, SnapshotError> {
    match target.operator().stat(path).await {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(SnapshotError::of_store(
            "look at an object",
            &target.at(path),
            &e,
        )),
        Ok(meta) => Ok(Some(
            meta.last_modified().map(|at| at.into_inner().as_second()),
        )),
    }
}
