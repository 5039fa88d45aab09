//! A process that ends in the middle of a round, as far as parity goes: at some operation on a
//! disk, which is not carried out any more.

use super::dead_disk::{all, check_all_protected, check_eight, pull, put_eight};
use super::*;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hayloft_io::decorators::{Effect, FaultRule};
use hayloft_io::{IoClass, IoOp};
use hayloft_store::inside::Volume;
use tokio::sync::Notify;

/// What is done when the process ends, of the first group that a round encodes, removes or
/// rebuilds a replica of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Members are claimed, nothing is written.
    Claimed,
    /// A part of the parity is written.
    HalfWritten,
    /// All parity is written.
    Written,
    /// All parity is durable.
    Synced,
    /// The first copy of the record is durable.
    FirstRecord,
    /// All copies are.
    Recorded,
    /// The first copy of the record of a group that goes was removed.
    Unrecorded,
    /// All its copies are.
    AllUnrecorded,
    /// A decoded replica lies in `tmp`.
    Decoded,
    /// It is in its place.
    Placed,
}

/// The `nth` operation of one kind, counted from 1, in a class and on paths for which `at` holds.
struct Operation {
    op: IoOp,
    class: IoClass,
    nth: u64,
    at: Box<dyn Fn(&Path) -> bool + Send + Sync>,
}

impl Step {
    /// The first operation that comes after it. Groups have two members and one parity file, but
    /// for those that are removed.
    fn next(self) -> Operation {
        let (op, nth, at): (_, _, fn(&Path) -> bool) = match self {
            // Members are looked at twice: before they are read, and when parity is durable.
            Self::Claimed | Self::Placed => (IoOp::Stat, 1, is_data),
            Self::Synced => (IoOp::Stat, 3, is_data),
            Self::Recorded => (IoOp::Stat, 5, is_data),
            // In two strides.
            Self::HalfWritten => (IoOp::Write, 2, is_parity),
            Self::Written => (IoOp::Sync, 1, is_parity),
            Self::FirstRecord => (IoOp::Replace, 2, is_record),
            Self::Unrecorded => (IoOp::Unlink, 2, |path| has_extension(path, "record")),
            Self::AllUnrecorded => (IoOp::Unlink, 1, is_parity),
            Self::Decoded => (IoOp::Rename, 1, is_data),
        };
        Operation {
            op,
            class: IoClass::Balancer,
            nth,
            at: Box::new(at),
        }
    }
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|e| e == extension)
}

fn is_data(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("blk_")) && !has_extension(path, "meta")
}

fn is_parity(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let file = name.and_then(GroupFile::parse);
    matches!(file, Some(GroupFile::Parity(..)))
}

fn is_record(path: &Path) -> bool {
    has_extension(path, "record") || has_extension(path, "head")
}

/// A round that the process does not live to see the end of: it ends behind `step`.
pub async fn end_behind(node: &Node, faults: &Faults, step: Step) {
    end_before(node, faults, step.next()).await;
}

/// The same in a scrub, when one group is done and the next begins.
pub async fn end_behind_a_scrubbed_group(node: &Node, faults: &Faults) {
    let first = OnceLock::new();
    // A group has copies on several volumes, under one name.
    let at = move |path: &Path| {
        let name = path.file_name().map(ToOwned::to_owned);
        has_extension(path, "record") && *first.get_or_init(|| name.clone()) != name
    };
    let next = Operation {
        op: IoOp::Read,
        class: IoClass::Scan,
        nth: 1,
        at: Box::new(at),
    };
    end_before(node, faults, next).await;
}

async fn end_before(node: &Node, faults: &Faults, operation: Operation) {
    let Operation { op, class, nth, at } = operation;
    let (ends, seen) = (Arc::new(Notify::new()), AtomicU64::new(0));
    let (tell, here) = (Arc::clone(&ends), Arc::new(AtomicBool::new(false)));
    let fails = Arc::clone(&here);
    let is_it = move |path: &Path| {
        let is_it = at(path) && seen.fetch_add(1, Ordering::Relaxed) + 1 == nth;
        if is_it {
            here.store(true, Ordering::Relaxed);
            tell.notify_one();
        }
        is_it
    };
    // The round waits in this operation, and is left there. A thread that has begun it fails.
    let waits = FaultRule::new(Effect::Delay(Duration::from_millis(1)));
    faults.add(waits.on(&[op]).in_class(class).at(is_it));
    let refused = FaultRule::new(Effect::Errno(EIO)).on(&[op]).in_class(class);
    faults.add(refused.at(move |_| fails.swap(false, Ordering::Relaxed)));
    tokio::select! {
        biased;
        () = ends.notified() => {}
        () = node.parity.round() => panic!("the round came to its end"),
    }
    faults.clear();
}

/// Data files in their places on the volumes that are in use.
fn data_files(node: &Node) -> usize {
    let volumes = node.store.state().volumes();
    let is_there = |volume: &Arc<Volume>, id: i64| {
        let slice = volume.slice(&pool()).expect("there");
        let dir = slice.paths.finalized_dir(id);
        dir.join(format!("blk_{id}")).exists()
    };
    let on = |volume| all().into_iter().filter(|id| is_there(volume, *id)).count();
    volumes.iter().map(on).sum()
}

#[tokio::test]
async fn a_rebuild_that_ends_at_any_step_is_gone_on_with() {
    let shape = shape(2, 1);
    for step in [Step::Decoded, Step::Placed, Step::FirstRecord] {
        let (node, faults) = start_faulty(4, shape).await;
        put_eight(&node).await;
        kill_disk(&node, 0).await;
        end_behind(&node, &faults, step).await;
        let moved = usize::from(step != Step::Decoded);
        assert_eq!(data_files(&node), 8 - 2 + moved, "{step:?}");
        node.store.crash();
        pull(&node, 0);
        let config = protected(node.dir.path(), 4, shape);
        let node = Node::start(node.dir, 4, config).await;
        assert_eq!(reported(&node), all(), "{step:?}");
        check_eight(&node).await;
        for _ in 0..3 {
            round(&node).await;
        }
        check_all_protected(&node, &format!("{step:?}"));
        check_eight(&node).await;
    }
}
