//! What every I/O engine must do: the contract of [`hayloft_io::engine`], as cases that run against
//! an engine in a scratch directory. `hayloft engine test` tries out plug-ins with them, and the
//! tests of `hayloft-io` the engines of the tree.
//!
//! - `breach`: what an engine did otherwise, as one sentence for its author
//! - `limits`: cancelled callers and full queues
//! - `open_files`: opening, lengths, syncs, names
//! - `rig`: an engine on a directory and a disk of its own
//! - `transfers`: reads and writes
//!
//! Each case rests on a sentence of `plugins/hayloft_engine.h`: what stands there and nothing else
//! is demanded. A case that fails says in a sentence which call did what instead.

mod breach;
mod limits;
mod open_files;
mod rig;
#[cfg(test)]
mod tests;
mod transfers;

use std::any::Any;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use futures_util::future::LocalBoxFuture;
use hayloft_io::IoError;

pub use breach::Breach;
use breach::Verdict;
pub use rig::EngineRig;

/// A case of the contract.
#[derive(Clone, Copy, Debug)]
pub struct ContractCase {
    /// What holds, in words joined by `_`.
    pub name: &'static str,
    /// The sentence of the header that it tries out.
    pub demand: &'static str,
    run: fn(EngineRig) -> LocalBoxFuture<'static, Verdict>,
}

impl ContractCase {
    /// Carries it out.
    ///
    /// # Errors
    /// Where the engine breaks the contract.
    pub async fn run(&self, rig: EngineRig) -> Result<(), Breach> {
        (self.run)(rig).await
    }
}

macro_rules! cases {
    ($($module:ident::$case:ident: $demand:literal)*) => {
        /// All cases. Skipped is only what a declared capability excludes.
        pub const CONTRACT_CASES: &[ContractCase] = &[$(ContractCase {
            name: stringify!($case),
            demand: $demand,
            run: |rig| Box::pin($module::$case(rig)),
        }),*];
    };
}

cases! {
    transfers::what_is_written_is_read_at_odd_offsets:
        "A completed write is what later reads of its range give, at any offset and of any count."
    transfers::gather_writes_of_more_buffers_than_the_kernel_takes:
        "The node makes a call for each of its buffers, and none for an empty one."
    transfers::reads_are_short_only_at_the_end:
        "0 only at or beyond the end; fewer than asked is fine, the node asks again."
    transfers::what_is_loaded_is_read_and_counted:
        "A completed write is what later reads of its range give, at any offset and of any count."
    transfers::a_gap_reads_as_zeros:
        "A gap before `offset` reads as zeros."
    transfers::impossible_ranges_give_the_buffer_back:
        "The node keeps offset + count below 2^63."
    transfers::a_write_to_a_read_only_handle_gives_the_buffers_back:
        "The node itself refuses to write, truncate or allocate there."
    transfers::many_at_once_do_not_mix:
        "Calls at the same time on ranges beside each other leave each range as its own call did."
    transfers::memory_of_any_alignment_is_accepted:
        "Buffers may have any alignment; others than these may cost a copy."
    open_files::opening_says_what_is_wrong:
        "What is no regular file does not open: a directory gives -EISDIR or -EINVAL, a path below \
         a file -ENOTDIR or -EINVAL."
    open_files::truncate_cuts_and_extends:
        "Cuts, or extends with zeros: what was cut does not come back when the file grows again."
    open_files::allocate_does_not_change_the_length:
        "A later truncate gives back what is beyond its length."
    open_files::sync_writeback_and_advice_are_accepted_anywhere:
        "It may come at any time, for an empty file too; after it stat(2) of the file tells its \
         length."
    open_files::handles_and_classes_see_the_same_file:
        "A file may be open several times at once: what one handle has completed, each sees."
    open_files::names_work_under_open_files:
        "The node renames, links, lists and deletes files itself, also while they are open: what \
         an engine keeps belongs to the inode, not to the name."
    open_files::a_new_file_under_an_old_name_is_empty:
        "A new file is empty, whatever had its name or its inode's number before."
    open_files::a_descriptor_is_given_as_declared:
        "With HAYLOFT_IN_FILES another process that reads the file finds them there as soon as a \
         write has completed, or its sync, without HAYLOFT_OUTLIVES_PROCESS."
    open_files::dropping_a_file_waits_for_no_disk:
        "After it nothing of the file stays open, so that a deleted one gives its room back."
    limits::a_dropped_caller_does_not_stop_a_submitted_write:
        "A call that was made is never called off, even if its client goes away."
    limits::a_dropped_caller_gives_pool_memory_back:
        "A buffer is the node's again when the call returns."
    limits::a_full_queue_makes_writers_wait:
        "Queues, and whose turn it is, are the node's."
    limits::a_full_queue_makes_readers_wait:
        "Queues, and whose turn it is, are the node's."
    limits::clients_do_not_wait_for_background_work:
        "Queues, and whose turn it is, are the node's."
}

/// How an engine did in a case.
#[derive(Clone, Debug)]
pub struct CaseOutcome {
    /// Name of the case.
    pub name: &'static str,
    /// What it took.
    pub took: Duration,
    /// What is wrong; `None`: nothing.
    pub wrong: Option<String>,
}

/// Carries out a case on its own rig for at most `limit`, on threads of its own: one that hangs or
/// panics costs its caller nothing else.
///
/// # Panics
/// When the system has no thread for it.
#[must_use]
pub fn try_out(
    case: ContractCase,
    rig: impl FnOnce() -> Result<EngineRig, IoError> + Send + 'static,
    limit: Duration,
) -> CaseOutcome {
    let began = Instant::now();
    let wrong = within(limit, move || {
        let rig = rig().map_err(|error| error.to_string())?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        let runtime = runtime.expect("threads for a runtime");
        let verdict = runtime.block_on(case.run(rig));
        runtime.shutdown_background();
        verdict.map_err(|breach| breach.to_string())
    });
    CaseOutcome {
        name: case.name,
        took: began.elapsed(),
        wrong: wrong.err(),
    }
}

/// Carries out work on a thread of its own, and waits for `limit` at most; the thread is left alone
/// after that. A panic of it becomes an error.
///
/// # Errors
/// Of the work, or that it takes too long, in words.
///
/// # Panics
/// When the system has no thread for it.
pub fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let (tell, ended) = mpsc::channel();
    let running = std::thread::spawn(move || {
        // Dropped however the work ends.
        let _tell: mpsc::Sender<()> = tell;
        work()
    });
    match ended.recv_timeout(limit) {
        Err(mpsc::RecvTimeoutError::Timeout) => {
            Err(format!("it does not end within {} s", limit.as_secs()))
        }
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => running
            .join()
            .unwrap_or_else(|panic| Err(in_words(&*panic))),
    }
}

fn in_words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    let text = text.unwrap_or_default();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("the case itself stopped: {text}")
}
