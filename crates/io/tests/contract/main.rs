//! One contract suite over every engine and decorator; see the module docs of
//! `hayloft_io::engine` for the contract. A case is skipped only by a declared capability.

mod limits;
mod open_files;
mod rig;
mod transfers;

/// A test for each case and engine.
macro_rules! contract {
    ($($engine:ident)*) => {
        $(mod $engine {
            contract!(@cases $engine
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
            );
        })*
    };
    (@cases $engine:ident $($module:ident::$case:ident)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            crate::$module::$case(crate::rig::Rig::new(stringify!($engine))).await;
        })*
    };
}

contract!(posix direct null metered faulty stacked);
// Around the page cache even when small; clients' reads through it; on a disk that is taken for a
// rotating one.
contract!(direct_as_eager direct_as_cached posix_as_rotating direct_as_rotating);
