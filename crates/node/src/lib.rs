//! The storage node daemon: NameNode services, data transfer, block recovery and the RPC server.
//!
//! | module | what it is |
//! |---|---|
//! | [`identity`] | names and ports |
//! | [`given_protection`] | what protects each part of a node, in words |
//! | [`store_config`] | configuration as the store takes it |
//! | [`namenode`] | one service per block pool, one actor per NameNode |
//! | [`xceiver`] | the data transfer port, both sides |
//! | [`ipc`] | what the RPC port answers: inter-datanode, client-datanode, reconfiguration |
//! | [`activity`] | what was done, in numbers; the audit trail |
//! | [`disk_balancer`] | replicas moved between volumes by an operator's plan |
//! | [`outliers`] | slow peers and slow disks |
//! | [`recovery`] | block recovery as the primary node |
//! | [`security`] | who is who, and what is allowed: block tokens |
//! | `snapshots` | snapshots that the node takes by itself |
//! | [`daemon`] | start, run and stop of all of it |
//! | [`http`] | what the web port answers |
//! | `metrics_sinks` | pushes metrics as `hadoop-metrics2.properties` says |
//! | [`memory`] | how much memory there is, and the node's part of it |
//! | [`daemonlog`] | levels of the log by the names of Apache's classes |

pub mod activity;
pub mod daemon;
pub mod daemonlog;
pub mod disk_balancer;
pub mod given_protection;
mod http;
pub mod identity;
pub mod ipc;
#[cfg(test)]
mod logged_tests;
pub mod memory;
mod metrics_sinks;
pub mod namenode;
pub mod outliers;
pub mod recovery;
pub mod security;
mod snapshots;
pub mod store_config;
pub mod xceiver;
