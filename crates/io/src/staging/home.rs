//! The area in use, and what is looked after while it is: quiet files, idle memory, the area's name.
//!
//! **An area that somebody removes** or renames stays usable memory, but the next process would not find it: what is
//! committed to it outlives nothing. So its files are written at once and its streams [move on](super::StagedFile::is_lost),
//! and a fresh area takes its place.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use super::area::Area;
use super::earlier::create;
use super::layout::ARENAS_MAX;
use super::{IDLE, IDLE_SHORT, SHRINK, SWEEP, Shared, StagingConfig};
use crate::error::IoError;

/// How long to wait after a fresh area could not be made; twice as long each time, up to the longest.
const RENEW: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });
const RENEW_LONGEST: Duration = Duration::from_secs(300);

/// Where the area in use is found.
#[derive(Debug)]
pub(super) struct Home {
    config: StagingConfig,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    shared: Arc<Shared>,
    /// Areas that were lost, as long as files use them.
    lost: Vec<Weak<Shared>>,
    ended: bool,
}

impl Home {
    /// A home with a new area.
    pub(super) fn new(config: &StagingConfig) -> Result<Arc<Self>, IoError> {
        let shared = Arc::new(Shared::new(new_area(config)?));
        let home = Arc::new(Self {
            config: config.clone(),
            now: Mutex::new(Now {
                shared: Arc::clone(&shared),
                lost: Vec::new(),
                ended: false,
            }),
        });
        home.look_after(&shared);
        Ok(home)
    }

    fn look_after(self: &Arc<Self>, shared: &Arc<Shared>) {
        let task = maintain(Arc::downgrade(shared), Arc::downgrade(self));
        shared.runtime.spawn(task);
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The area in use.
    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.lock().shared)
    }

    /// See [`Staging::end`](super::Staging::end).
    pub(super) fn end(&self) {
        let shared = {
            let mut now = self.lock();
            now.ended = true;
            Arc::clone(&now.shared)
        };
        let area = &shared.area;
        area.watch_name();
        area.close();
        if area.is_frozen() {
            return;
        }
        let owned = area.owned();
        if area.is_lost() {
            if owned > 0 {
                error!(area = %area.path().display(), segments = owned, "bytes that could not be written are lost with the staging \
                    area, which somebody removed");
            }
            return; // What has the name now is not ours.
        }
        if owned > 0 {
            warn!(area = %area.path().display(), segments = owned, "bytes that could not be written stay in the staging area; the \
                next start tries again");
            return;
        }
        if let Err(error) = std::fs::remove_file(area.path()) {
            warn!(area = %area.path().display(), %error, "cannot remove the staging area, which is empty");
        }
    }

    /// See [`Staging::crash`](super::Staging::crash).
    pub(super) fn crash(&self) {
        let mut now = self.lock();
        now.ended = true;
        now.shared.area.freeze();
        for lost in now.lost.iter().filter_map(Weak::upgrade) {
            lost.area.freeze();
        }
    }

    /// Puts a fresh area in the place of one that was lost.
    async fn renew(self: &Arc<Self>, lost: &Arc<Shared>, again: Duration) {
        let wanted = |now: &Now| !now.ended && Arc::ptr_eq(&now.shared, lost);
        if !wanted(&self.lock()) {
            return;
        }
        let config = self.config.clone();
        let made = tokio::task::spawn_blocking(move || new_area(&config)).await;
        let area = match made {
            Ok(Ok(area)) => area,
            Ok(Err(error)) => {
                warn!(%error, "no fresh staging area, replicas are written without; trying again in {} s", again.as_secs());
                return;
            }
            Err(_) => return, // The process ends.
        };
        let fresh = Arc::new(Shared::new(area));
        {
            let mut now = self.lock();
            if !wanted(&now) {
                drop(now);
                // Nothing is in it.
                let _ = std::fs::remove_file(fresh.area.path());
                return;
            }
            now.lost.retain(|lost| lost.strong_count() > 0);
            let old = std::mem::replace(&mut now.shared, Arc::clone(&fresh));
            now.lost.push(Arc::downgrade(&old));
        }
        info!(area = %fresh.area.path().display(), "staging goes on in a fresh area");
        self.look_after(&fresh);
    }
}

/// A new area, with its file.
fn new_area(config: &StagingConfig) -> Result<Area, IoError> {
    let path = config.path();
    let file = create(&path)?;
    let arenas = usize::try_from(config.budget / super::BUDGET_MIN).unwrap_or(usize::MAX);
    let arenas = arenas.clamp(1, ARENAS_MAX);
    Area::new(file, path.clone(), arenas).inspect_err(|_| {
        // Nothing is in it; the error that counts is the one that is returned.
        let _ = std::fs::remove_file(&path);
    })
}

/// Looks at all files every now and then, more often while somebody waits for segments.
async fn maintain(shared: Weak<Shared>, home: Weak<Home>) {
    let (mut renew_at, mut pause) = (Instant::now(), RENEW);
    loop {
        let Some(strong) = shared.upgrade() else {
            return;
        };
        let area = Arc::clone(&strong.area);
        drop(strong);
        // An area that nobody uses any more is noticed at the next tick.
        if !area.is_short() {
            let _ = tokio::time::timeout(SWEEP, area.pressure.notified()).await;
        }
        if area.is_frozen() {
            return;
        }
        // A shortage may last as long as a disk hangs: the rest is looked after all the same.
        let since = Instant::now();
        while area.is_short() && since.elapsed() < SWEEP {
            let Some(strong) = shared.upgrade() else {
                return;
            };
            if strong.is_stuck() {
                strong.relieve();
            }
            drop(strong);
            area.try_again();
            tokio::time::sleep(IDLE_SHORT).await;
        }
        let Some(strong) = shared.upgrade() else {
            return;
        };
        area.watch_name();
        // Who waits may wait for what lies in quiet files, while a disk has writes of others in progress for ever.
        let (idle, shrink) = match (area.is_lost(), area.is_short()) {
            (true, _) => (Duration::ZERO, Duration::ZERO),
            (false, true) => (SWEEP, SHRINK),
            (false, false) => (IDLE, SHRINK),
        };
        let files = strong.files();
        files.iter().for_each(|f| f.sweep(idle));
        strong.count(&files);
        area.shrink_when_idle(shrink);
        area.try_again();
        if area.is_lost()
            && Instant::now() >= renew_at
            && let Some(home) = home.upgrade()
        {
            home.renew(&strong, pause).await;
            renew_at = Instant::now() + pause;
            pause = (pause * 2).min(RENEW_LONGEST);
        }
    }
}
