//! Reading one replica.
//!
//! - `decoded`: replicas whose files are not there, opened by decoding
//! - `open`: opening a replica for reading while others write, rename and remove its files
//! - `plain_files`: the files of a replica for another process
//! - `rename_guard`: telling a file that is being renamed from one that is gone
//! - `replica_reader`: one replica opened for reading
//! - `stored_sums`: checksums that are read when a replica is opened

mod decoded;
mod open;
mod plain_files;
mod rename_guard;
mod replica_reader;
mod stored_sums;

pub(crate) use open::{MissingMeta, open_alone, open_reader};
pub use plain_files::{PlainFiles, ReplicaWatch};
pub(crate) use plain_files::{open_own_files, open_plain_files};
pub use replica_reader::ReplicaReader;
