//! Carries the steps of a plan out, one replica after the other.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use hayloft_io::locks::lock;
use hayloft_io::told_if_broken;
use hayloft_store::{Store, StoreError, StoreErrorKind, VolumeSpace, now_ms};
use hayloft_wire::ids::{ExtendedBlock, PoolId};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use super::work::Work;
use super::{DiskBalancerParts, Execution, volume};

/// Replicas of a pool that are looked up at a time. Each look goes through all of the pool.
const LOOKED_UP: usize = 10_000;
/// A check of a disk takes a moment, so failed moves do not follow each other at once.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Why a step ends.
enum End {
    /// What it was to move is moved, or the plan is cancelled.
    Quiet,
    /// It says why, in the words of Apache's node, or in ours where that says nothing.
    Early(String),
}

/// Carries out all steps.
pub(super) async fn run(parts: &DiskBalancerParts, plan: &Execution) {
    for work in &plan.steps {
        if plan.stop.is_cancelled() {
            break;
        }
        let end = told_if_broken("disk balancer", carry_out(parts, plan, work)).await;
        let broken = || End::Early("The step broke: see the log of the node.".to_owned());
        let end = end.unwrap_or_else(broken);
        let mut work = lock(work);
        let (source, target) = (&work.source.path, &work.target.path);
        match end {
            End::Quiet => info!(
                source,
                target,
                bytes = work.bytes_copied,
                blocks = work.blocks_copied,
                "a step of the disk balancer has ended"
            ),
            End::Early(why) => {
                warn!(
                    source,
                    target,
                    bytes = work.bytes_copied,
                    errors = work.error_count,
                    "a step of the disk balancer ends early: {why}"
                );
                work.error = Some(why);
            }
        }
    }
}

/// Carries out one step.
async fn carry_out(parts: &DiskBalancerParts, plan: &Execution, step: &Mutex<Work>) -> End {
    let began = Instant::now();
    let limits = {
        let mut work = lock(step);
        work.started_ms = now_ms();
        work.limits(&parts.config.current())
    };
    let mut sources = Sources::new(parts.store.pools());
    while !plan.stop.is_cancelled() {
        // A copy: a query of an operator sees the step while a move runs.
        let work = lock(step).clone();
        let volumes = parts.store.volume_spaces();
        if let Err(why) = may_go_on(&volumes, &work) {
            return End::Early(why);
        }
        if work.error_count > limits.max_disk_errors {
            return End::Early("Error count exceeded.".to_owned());
        }
        if work.is_close_enough(limits) {
            return End::Quiet;
        }
        let next = match work.longest_next(limits) {
            Some(longest) => {
                sources
                    .next(&parts.store, &work.source.storage, longest)
                    .await
            }
            None => None,
        };
        let Some(block) = next else {
            return End::Early("No source blocks found to move.".to_owned());
        };
        if let Err(why) = has_room(&volumes, &work) {
            return End::Early(why);
        }
        let begun = Instant::now();
        let (source, target) = (&work.source.storage, &work.target.storage);
        let moved = tokio::select! {
            biased;
            // The store ends the move itself then.
            () = parts.stop.cancelled() => break,
            moved = parts.store.move_between(&block, source, target) => moved,
        };
        if let Ok(moved) = &moved {
            debug!(block = %moved.block, source, target, "moved by the disk balancer");
            (parts.tell)(moved);
        }
        // The bytes count when their time is over, so that the rate told is the true one.
        let mut due = begun + limits.least_time(block.block.num_bytes);
        if moved.as_ref().is_err_and(is_of_disk) {
            due = due.max(Instant::now() + AFTER_FAILURE);
        }
        tokio::select! {
            () = sleep_until(due) => {}
            () = plan.stop.cancelled() => {}
        }
        match moved {
            Ok(moved) => note_moved(step, moved.block.block.num_bytes, began.elapsed()),
            Err(error) => note_failed(step, &block, &error),
        }
    }
    End::Quiet
}

fn note_moved(step: &Mutex<Work>, bytes: u64, elapsed: Duration) {
    let mut work = lock(step);
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    work.bytes_copied = work.bytes_copied.saturating_add(bytes);
    work.blocks_copied += 1;
    work.seconds_elapsed = elapsed.as_secs();
}

/// Whether a move failed for a disk. A replica that was changed or deleted meanwhile is none of
/// its errors, nor is what the whole process lacks.
fn is_of_disk(error: &StoreError) -> bool {
    use StoreErrorKind::{Closed, Illegal, NotFound, Retry, UnexpectedGenerationStamp};
    let others = [NotFound, Illegal, UnexpectedGenerationStamp, Retry, Closed];
    !others.contains(&error.kind())
}

fn note_failed(step: &Mutex<Work>, block: &ExtendedBlock, error: &StoreError) {
    if !is_of_disk(error) {
        debug!(%block, %error, "the disk balancer leaves a replica alone");
        return;
    }
    warn!(%block, %error, "the disk balancer cannot move a replica");
    lock(step).error_count += 1;
}

/// The two volumes of a step are there and of a kind that is balanced.
fn may_go_on(volumes: &[VolumeSpace], work: &Work) -> Result<(), String> {
    for (which, side) in [("source", &work.source), ("dest", &work.target)] {
        let Some(volume) = volume(volumes, &side.storage) else {
            let path = &side.path;
            return Err(format!(
                "Disk Balancer - Unable to find {which} volume: {path}"
            ));
        };
        if volume.storage.storage_type.is_transient() {
            return Err("Disk Balancer - Unable to support transient storage type.".to_owned());
        }
    }
    Ok(())
}

/// As Apache's, a step wants room for all that it is to move.
fn has_room(volumes: &[VolumeSpace], work: &Work) -> Result<(), String> {
    let free = volume(volumes, &work.target.storage).map_or(0, |v| v.free);
    if i128::from(free) > i128::from(work.bytes_to_copy) {
        return Ok(());
    }
    Err(format!(
        "Destination volume: {} has {free} bytes free, not more than the {} bytes of the step.",
        work.target.path, work.bytes_to_copy
    ))
}

/// The replicas of a step's source: each once, pools in turn.
struct Sources(VecDeque<PoolSources>);

struct PoolSources {
    pool: PoolId,
    /// The last that was looked up.
    after: i64,
    ready: VecDeque<ExtendedBlock>,
}

impl Sources {
    fn new(pools: Vec<PoolId>) -> Self {
        let sources = |pool| PoolSources {
            pool,
            after: i64::MIN,
            ready: VecDeque::new(),
        };
        Self(pools.into_iter().map(sources).collect())
    }

    /// Gives the next that is no longer than `len_max`. What is too long now is so later, too.
    async fn next(&mut self, store: &Store, storage: &str, len_max: u64) -> Option<ExtendedBlock> {
        while let Some(mut sources) = self.0.pop_front() {
            let found = sources.next(store, storage, len_max).await;
            if found.is_some() {
                self.0.push_back(sources);
                return found;
            }
        }
        None
    }
}

impl PoolSources {
    async fn next(&mut self, store: &Store, storage: &str, len_max: u64) -> Option<ExtendedBlock> {
        loop {
            if self.ready.is_empty() {
                let (store, pool) = (store.clone(), self.pool.clone());
                let (storage, after) = (storage.to_owned(), self.after);
                // A pool may have millions.
                let look = move || store.movable_on((&pool, &storage), after, len_max, LOOKED_UP);
                self.ready = tokio::task::spawn_blocking(look).await.ok()?.into();
                self.after = self.ready.back()?.block.id;
            }
            let mut ready = std::iter::from_fn(|| self.ready.pop_front());
            if let Some(block) = ready.find(|b| b.block.num_bytes <= len_max) {
                return Some(block);
            }
        }
    }
}
