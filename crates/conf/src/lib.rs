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
//! | `data_dir`, `node_name`, `uri` | directories of volumes, virtual nodes, as they are written |
//! | `xml`, `substitute` | files to properties, `${...}` |
//! | `volume_keys` | which keys are of one volume |
//! | `volume_settings` | what those say: room to keep free, share, engine |
//! | `configuration`, `origin` | a snapshot, and where its values are from |
//! | `running_configuration` | the snapshot of now, and reading the files again |
//! | `namenodes`, `web_address` | name services, addresses of NameNodes and of their pages |
//! | `virtual_nodes` | several nodes in one process, a configuration for each |
//! | `domain_socket` | whether clients of this host have a socket, and where |
//! | `kerberos` | what a node with Kerberos needs besides |
//! | `transfer_protection` | protection of data transfer that is not served |
//! | `review` | what the files ask for that is not done here: warnings, refusals |
//! | `metrics_sinks` | where metrics are pushed to: `hadoop-metrics2.properties` |
//! | `read_java_files` | files of Java's and of the shell: keys and values, words |
//! | `unsupported` | the keys without effect, and what a JVM's files ask for |
//! | `print`, `secrets` | reports, and what they do not show |
//! | [`patterns`] | regular expressions, compiled once |

mod address;
mod bounded_file;
mod choice;
mod configuration;
mod data_dir;
mod domain_socket;
mod error;
mod kerberos;
mod key;
pub mod keys;
mod metrics_sinks;
mod namenodes;
mod node_name;
mod origin;
pub mod patterns;
mod print;
mod read_java_files;
mod review;
mod running_configuration;
mod secrets;
mod substitute;
#[cfg(test)]
mod tests;
mod transfer_protection;
mod unsupported;
mod uri;
mod value;
mod virtual_nodes;
mod volume_keys;
mod volume_settings;
mod web_address;
mod xml;

pub use address::HostPort;
pub use choice::{Calculator, ChoosingPolicy, EngineName, KeyGenerator, LimitOrAuto};
pub use configuration::Configuration;
pub use data_dir::{CapacityRatio, DataDir};
pub use error::ConfigError;
pub use key::{AnyKey, Key};
pub use metrics_sinks::{MetricsSink, MetricsSinks, SinkFilter, SinkTarget};
pub use namenodes::{NameNodeAddr, NameService, namenodes};
pub use node_name::{NodeName, VIRTUAL_NODES_MAX};
pub use origin::Origin;
pub use print::{Setting, to_markdown};
pub use read_java_files::{JavaProperty, java_properties, read_java_file, shown};
pub use running_configuration::{Change, SharedConfig};
pub use unsupported::{Unsupported, missed_from_java};
pub use value::{Mode, Unit, Value};
pub use virtual_nodes::VirtualNode;
pub use volume_settings::Reserved;
pub use web_address::namenode_web_address;
