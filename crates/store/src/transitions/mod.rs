//! What replicas and volumes go through: a writer that stops, a close, a commit round, a deletion,
//! a failure.
//!
//! - `check_volume`: whether a volume can go on, by its errors and by checks
//! - `delete`: deleting replicas: at once in the map
//! - `move_to_finalized`: how a live replica becomes a finalized one
//! - `run_commit_rounds`: commit rounds at work: they sync what `CommitRounds` has collected
//! - `stop_writer`: getting the exclusive right to change a replica
//! - `to_trash`: where deleted replicas go while a rolling upgrade runs
//! - `volume_failure`: what happens when a volume fails

pub mod check_volume;
pub mod delete;
pub mod move_to_finalized;
pub mod run_commit_rounds;
pub mod stop_writer;
pub mod to_trash;
pub mod volume_failure;
