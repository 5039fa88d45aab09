//! What the store does on its own: deletes, scanners, moves between volumes.
//!
//! - `block_scanner`: the block scanner: every finalized replica is read once in a period and
//!   compared with its checksums
//! - `directory_scanner`: the directory scanner: compares directories with the replica map every
//!   few hours
//! - `idle_files`: closing the files that readers left open for the next, when no next one comes
//! - `invalidate`: the NameNode's INVALIDATE: which replicas go
//! - `bring_files`: links and copies of a replica's files for another volume
//! - `move_replica`: moving replicas between volumes of this node
//! - `scanner_cursor`: where the block scanner is, in Apache's `scanner.cursor` (JSON)
//! - `search_bad_disk`: the search through a volume whose disk had errors in different places
//! - `settle_differences`: what the directory scanner does about a difference between directories
//!   and the replica map
//! - `space_watch`: reading the space of volumes
//! - `suspects`: replicas that a client could not read, or that a client found damaged
//! - `take_over`: taking a replica over from another store of this process
//! - `verify_replica`: reading replicas of one volume for the sake of reading them

pub mod block_scanner;
pub mod bring_files;
pub mod directory_scanner;
pub mod idle_files;
pub mod invalidate;
pub mod move_replica;
pub mod scanner_cursor;
pub mod search_bad_disk;
pub mod settle_differences;
pub mod space_watch;
pub mod suspects;
pub mod take_over;
pub mod verify_replica;
