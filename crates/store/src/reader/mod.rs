//! Reading one replica.

mod decoded;
mod open;
mod rename_guard;
mod replica_reader;

pub(crate) use open::{MissingMeta, open_alone, open_reader};
pub use replica_reader::ReplicaReader;
