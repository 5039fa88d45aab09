//! Hadoop configuration files, read as Hadoop reads them, every key declared once.
//!
//! [`Configuration`] is one validated snapshot; [`SharedConfig`] the running node's, which
//! reconfiguration replaces. [`keys`] is the table: a value is read with
//! `config.get(&keys::HEARTBEAT_INTERVAL)` and has its type. [`namenodes()`] says whom to register
//! with.
//!
//! | module | what it is |
//! |---|---|
//! | [`keys`] | the table of keys |
//! | `key`, `value`, `choice`, `address` | what a key and its types are |
//! | `volumes` | directories, and keys of one volume |
//! | `xml`, `substitute` | files to properties, `${...}` |
//! | `configuration`, `shared` | a snapshot, and the running one |
//! | `namenodes` | name services and NameNode addresses |
//! | `virtual_nodes` | several nodes in one process, a configuration for each |
//! | `review`, `unsupported` | what is asked for and not done here |
//! | `print` | reports |

mod address;
mod choice;
mod configuration;
mod error;
mod key;
pub mod keys;
mod namenodes;
mod print;
mod review;
mod shared;
mod substitute;
#[cfg(test)]
mod tests;
mod unsupported;
mod value;
mod virtual_nodes;
mod volumes;
mod xml;

pub use address::HostPort;
pub use choice::{Calculator, ChoosingPolicy, EngineName, LimitOrAuto};
pub use configuration::{Configuration, Origin};
pub use error::ConfigError;
pub use key::{AnyKey, Key};
pub use namenodes::{NameNodeAddr, NameService, namenodes};
pub use print::{Setting, to_markdown};
pub use shared::{Change, SharedConfig};
pub use unsupported::{Unsupported, missed_from_java};
pub use value::{Mode, Unit, Value};
pub use virtual_nodes::{NodeName, VIRTUAL_NODES_MAX, VirtualNode};
pub use volumes::{CapacityRatio, DataDir, Reserved};
