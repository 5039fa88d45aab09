//! What replicas and volumes go through: a writer that stops, a close, a commit round, a deletion,
//! a failure.

pub mod delete;
pub mod finalize;
pub mod run_commit_rounds;
pub mod stop_writer;
pub mod to_trash;
pub mod volume_failure;
