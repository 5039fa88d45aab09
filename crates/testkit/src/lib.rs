//! Clusters of real processes: stock NameNode, stock or Hayloft nodes, stock clients.
//!
//! - `cluster`: a cluster: NameNodes, nodes, a client configuration, one directory
//! - `congestion`: TCP congestion control: which one a run had
//! - `driver`: a JVM that stays up for a whole test file and runs stock client code on request
//! - `error`: errors are the launcher's; a test has its own way to make one
//! - `files`: what tests do with files through the driver, in one line each
//! - `hadoop`: Hadoop as the launcher finds it
//! - `hbase`: HBase's jars, and the lab's client on them
//! - `load`: a load client that costs little
//! - `machine`: the machine below a benchmark
//! - `made_blocks`: many blocks that no client wrote
//! - `modelled`: a modelled hard disk: seek-bound behaviour on a machine that has no hard disk
//! - `mounts`: small file systems for tests of full, read-only and failing disks
//! - `parity`: what `hayloft parity` says of a node
//! - `pattern`: test data as a pure function of a seed and a file offset
//! - `power`: nodes that are killed or lose their power or their disk
//! - `process_usage`: what the kernel says about a process: memory, descriptors, CPU time
//! - `relay`: a TCP relay that can hold back what passes through it: a network that stalls
//! - `s3_server`: a server of S3 on this host: moto's
//! - `striped`: erasure-coded files: where their internal blocks are
//! - `suite`: the cluster tests as trials of `libtest-mimic`
//! - `work`: the same work for clusters that protect their data in different ways
//! - `yarn`: YARN: a stock ResourceManager and stock NodeManagers
//!
//! Nothing here is a mock. A [`cluster::Cluster`] is a directory with configuration, logs and
//! data, and one process per role; a [`driver::Driver`] is a JVM that stays up for a whole test
//! file and runs stock client code on request. From the bottom up:
//!
//! - `hayloft_cluster`, whose modules are here too: the launcher that `hayloft up` uses as well;
//! - [`pattern`]: test data by seed and offset, [`hadoop`]: classes, jars and programs of tests;
//! - [`cluster`]: roles on this host, for tests and benchmarks;
//! - [`driver`]: stock clients by request;
//! - [`yarn`]: ResourceManager and NodeManagers for MapReduce, on this host or the lab's;
//! - [`process_usage`]: memory, descriptors and CPU time of a process;
//! - `modelled` (feature of that name): hard disks with modelled service times;
//! - [`mounts`]: small disks that can be filled and broken;
//! - [`striped`]: where the internal blocks of erasure-coded files are;
//! - [`files`]: what tests do with files through the driver, in one line each;
//! - `suite` (feature `cluster`): the test harness: one cluster, many cases, a line each;
//! - [`load`]: a load client that costs little, and a node without a NameNode;
//! - `power` (feature `load`): nodes that are killed or lose their power or their disk, and what
//!   is left then of what they acknowledged;
//! - `blocking_rpc` (feature `load`): calls of a server from threads that wait;
//! - `machine`, `congestion` (feature `load`): what this machine is, and over which TCP it talks.

#[cfg(feature = "load")]
pub mod blocking_rpc;
pub mod cluster;
#[cfg(feature = "load")]
pub mod congestion;
pub mod driver;
pub mod error;
pub mod files;
pub mod hadoop;
pub mod hbase;
#[cfg(feature = "load")]
pub mod load;
#[cfg(feature = "load")]
pub mod machine;
#[cfg(feature = "load")]
pub mod made_blocks;
#[cfg(feature = "modelled")]
pub mod modelled;
pub mod mounts;
pub mod parity;
pub mod pattern;
#[cfg(feature = "load")]
pub mod power;
pub mod process_usage;
pub mod relay;
pub mod s3_server;
#[cfg(feature = "cluster")]
pub mod shared_work;
pub mod striped;
#[cfg(feature = "cluster")]
pub mod suite;
pub mod yarn;

pub use hayloft_cluster::{
    hadoop_conf, http, namenode, node, ports, process, process_identity, realm, tls_stores, wait,
    where_processes_run,
};

pub use cluster::{Cluster, ClusterBuilder};
pub use driver::Driver;
pub use error::{Result, TestkitError};
pub use node::{Kind, NodeSpec, VolumeSpec};
#[cfg(feature = "cluster")]
pub use suite::{Outcome, Suite};
