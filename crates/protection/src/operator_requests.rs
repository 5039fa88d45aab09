//! What operators ask of a running node, by files in its directories.

use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::{Duration, SystemTime};

use hayloft_io::{IoClass, IoError, IoOp, locks};
use hayloft_parity::PARITY_DIR;
use hayloft_store::now_ms;

use super::volumes::{UnitPlace, answer};
use super::{Parity, ParityStatus, status};

/// How often the node looks whether it is asked for its status.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Volumes on which it looks for that: one may be read-only, another may hang.
const LOOKED_AT: usize = 3;

/// What an operator may ask of a running node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParityRequest {
    /// Compare everything with its checksums, and mend what is damaged.
    Scrub,
    /// Rebuild what is lost now.
    Rebuild,
    /// Say anew what there is, within seconds.
    Status,
}

impl ParityRequest {
    /// What a round looks for.
    const OF_ROUNDS: [Self; 2] = [Self::Scrub, Self::Rebuild];

    /// Its name, as the command has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Scrub => "scrub",
            Self::Rebuild => "rebuild",
            Self::Status => "status",
        }
    }

    /// The file of the request on the volume at `root`. A node that uses the volume carries it out
    /// soon after the file is there or touched, or when it starts.
    #[must_use]
    pub fn file(self, root: &Path) -> PathBuf {
        root.join(PARITY_DIR)
            .join(format!("request-{}", self.name()))
    }

    /// Leaves the request on a volume, as the command does.
    #[cfg(test)]
    pub(crate) fn leave(self, root: &Path) -> std::io::Result<()> {
        std::fs::write(self.file(root), b"")
    }
}

impl ParityStatus {
    /// When such a request was carried out last, milliseconds since 1970; 0: never by this process.
    #[must_use]
    pub fn done(&self, request: ParityRequest) -> u64 {
        match request {
            ParityRequest::Scrub => self.scrubbed_at_ms,
            ParityRequest::Rebuild => self.rebuilt_at_ms,
            ParityRequest::Status => self.at_ms,
        }
    }
}

/// When a request was left on a volume; `None`: none is there.
async fn left_at(place: &UnitPlace, request: ParityRequest) -> Option<SystemTime> {
    let path = request.file(&place.volume.root);
    let look = place.volume.meta(IoClass::Balancer);
    let look = look.run(IoOp::Stat, &path, |path| match std::fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        facts => {
            let left = facts.and_then(|facts| facts.modified());
            left.map(Some)
                .map_err(|e| IoError::from_std(IoOp::Stat, path, &e))
        }
    });
    answer(place, look).await.ok().flatten()
}

/// What operators ask for.
pub async fn requests(parity: &Parity) -> Vec<ParityRequest> {
    let mut found = Vec::new();
    let mut places = parity.places();
    places.retain(|place| parity.answers(&place.volume));
    for request in ParityRequest::OF_ROUNDS {
        let looks = places.iter().map(|place| async move {
            let left = left_at(place, request).await?;
            let path = request.file(&place.volume.root);
            let stuck = locks::lock(&parity.stuck_requests).get(&path).copied();
            (stuck != Some(left)).then_some(())
        });
        let asked = futures_util::future::join_all(looks).await;
        if asked.iter().any(Option::is_some) {
            found.push(request);
        }
    }
    found
}

/// Takes note that requests were carried out.
pub async fn carried_out(parity: &Parity, requests: &[ParityRequest]) {
    for request in requests {
        for place in parity.places() {
            remove(parity, &place, *request).await;
        }
        let mut published = locks::lock(&parity.published);
        match request {
            ParityRequest::Scrub => published.scrubbed_at_ms = now_ms(),
            ParityRequest::Rebuild => published.rebuilt_at_ms = now_ms(),
            ParityRequest::Status => {}
        }
    }
    if !requests.is_empty() {
        status::publish_anyway(parity).await;
    }
}

/// Removes a request that was carried out. One that stays is not carried out again.
async fn remove(parity: &Parity, place: &UnitPlace, request: ParityRequest) {
    if !parity.answers(&place.volume) {
        return;
    }
    let path = request.file(&place.volume.root);
    let unlink = place.volume.meta(IoClass::Balancer).unlink(&path);
    let _ = answer(place, unlink).await;
    let left = left_at(place, request).await;
    let mut stuck = locks::lock(&parity.stuck_requests);
    match left {
        Some(at) => stuck.insert(path, at),
        None => stuck.remove(&path),
    };
}

/// Says anew what there is whenever an operator asks, beside rounds, which take their time.
pub async fn answer_requests(parity: Weak<Parity>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(parity) = parity.upgrade() else {
            return;
        };
        if !*locks::lock(&parity.running) {
            return;
        }
        answer_status(&parity).await;
    }
}

/// Looks once.
pub async fn answer_status(parity: &Parity) {
    let mut places = parity.usable_places();
    places.truncate(LOOKED_AT);
    let mut asked = false;
    for place in &places {
        let path = ParityRequest::Status.file(&place.volume.root);
        let Some(left) = left_at(place, ParityRequest::Status).await else {
            continue;
        };
        let stuck = locks::lock(&parity.stuck_requests).get(&path).copied();
        asked |= stuck != Some(left);
    }
    if asked {
        for place in parity.places() {
            remove(parity, &place, ParityRequest::Status).await;
        }
        status::publish_anyway(parity).await;
    }
}
