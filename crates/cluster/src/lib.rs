//! The launcher of real processes: a stock NameNode, and nodes, stock or Hayloft's. `hayloft up`,
//! the tests, the benchmarks and the lab's hosts all start their clusters with it.
//!
//! - `error`: what can go wrong with the processes of a cluster, and what to do about it
//! - `hadoop`: where the stock Hadoop is and how its programs are started
//! - `hadoop_conf`: Hadoop configuration directories
//! - `http`: the few bytes of HTTP that the commands and tests need
//! - `namenode`: a stock NameNode process
//! - `node`: a storage node: stock DataNode or Hayloft, on the same directories and ports
//! - `ports`: ports chosen at run time that stay ours while a process is down
//! - `process`: child processes with a log file, that die with us unless told otherwise
//! - `process_identity`: whether a recorded process is still that process
//! - `realm`: a Kerberos realm with a KDC of its own
//! - `tls_stores`: a key for web servers, and its certificate for clients
//! - `wait`: polling with deadlines
//! - `where_processes_run`: where a process runs, and whether it outlives the program that started
//!   it
//!
//! It needs no node of ours in this process and links none. From the bottom up:
//!
//! - [`wait`]: deadlines and polling, [`http`]: the few bytes of HTTP that ask a daemon's web port;
//! - [`ports`]: ports that stay ours over a restart;
//! - [`process`]: children that die with us (or outlive us, when asked), with their logs;
//! - [`process_identity`]: whether a recorded process is still that process;
//! - [`where_processes_run`]: this host or a network namespace, and whether a process outlives us;
//! - [`realm`]: Debian's KDC in a directory of its own;
//! - [`hadoop`]: where Hadoop's jars are and how its programs are started;
//! - [`tls_stores`]: what keytool makes for HTTPS;
//! - [`hadoop_conf`]: `core-site.xml`, `hdfs-site.xml`, `yarn-site.xml`, `log4j.properties`;
//! - [`node`], [`namenode`]: the roles, and what can be done to them.

pub mod error;
pub mod hadoop;
pub mod hadoop_conf;
pub mod http;
pub mod namenode;
pub mod node;
pub mod ports;
pub mod process;
pub mod process_identity;
pub mod realm;
pub mod tls_stores;
pub mod wait;
pub mod where_processes_run;

pub use error::{ClusterError, Result};
