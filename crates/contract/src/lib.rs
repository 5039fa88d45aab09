//! What every I/O engine must do: the contract of [`hayloft_io::engine`], as cases that run against
//! an engine in a scratch directory. `hayloft engine test` tries out plug-ins with them, and the
//! tests of `hayloft-io` the engines of the tree.
//!
//! A case panics where the engine breaks the contract; [`try_out`] turns that into words.

mod limits;
mod open_files;
mod rig;
mod transfers;

use std::any::Any;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use futures_util::future::LocalBoxFuture;
use hayloft_io::IoError;

pub use rig::EngineRig;

/// A case of the contract.
#[derive(Clone, Copy, Debug)]
pub struct ContractCase {
    /// What holds, in words joined by `_`.
    pub name: &'static str,
    run: fn(EngineRig) -> LocalBoxFuture<'static, ()>,
}

impl ContractCase {
    /// Carries it out.
    ///
    /// # Panics
    /// Where the engine breaks the contract.
    pub async fn run(&self, rig: EngineRig) {
        (self.run)(rig).await;
    }
}

macro_rules! cases {
    ($($module:ident::$case:ident)*) => {
        /// All cases. Skipped is only what a declared capability excludes.
        pub const CONTRACT_CASES: &[ContractCase] = &[$(ContractCase {
            name: stringify!($case),
            run: |rig| Box::pin($module::$case(rig)),
        }),*];
    };
}

cases! {
    transfers::what_is_written_is_read_at_odd_offsets
    transfers::gather_writes_of_more_buffers_than_the_kernel_takes
    transfers::reads_are_short_only_at_the_end
    transfers::what_is_loaded_is_read_and_counted
    transfers::a_gap_reads_as_zeros
    transfers::impossible_ranges_give_the_buffer_back
    transfers::a_write_to_a_read_only_handle_gives_the_buffers_back
    transfers::many_at_once_do_not_mix
    transfers::memory_of_any_alignment_is_accepted
    open_files::opening_says_what_is_wrong
    open_files::truncate_cuts_and_extends
    open_files::allocate_does_not_change_the_length
    open_files::sync_writeback_and_advice_are_accepted_anywhere
    open_files::handles_and_classes_see_the_same_file
    open_files::names_work_under_open_files
    open_files::a_new_file_under_an_old_name_is_empty
    open_files::a_descriptor_is_given_as_declared
    open_files::dropping_a_file_waits_for_no_disk
    limits::a_dropped_caller_does_not_stop_a_submitted_write
    limits::a_dropped_caller_gives_pool_memory_back
    limits::a_full_queue_makes_writers_wait
    limits::a_full_queue_makes_readers_wait
    limits::clients_do_not_wait_for_background_work
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
        runtime.block_on(case.run(rig));
        runtime.shutdown_background();
        Ok(())
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
    text.unwrap_or_else(|| "it panicked".into())
}
