//! The storage node daemon: NameNode services, data transfer, block recovery and the RPC server.
//!
//! | module | what it is |
//! |---|---|
//! | [`identity`], [`store_config`] | names and ports; configuration as the store takes it |
//! | [`namenode`] | one service per block pool, one actor per NameNode |
//! | [`xceiver`] | the data transfer port, both sides |
//! | [`ipc`] | what the RPC port answers: inter-datanode, client-datanode, reconfiguration |
//! | [`activity`] | what was done, in numbers; the audit trail |
//! | [`outliers`] | slow peers and slow disks |
//! | [`recovery`] | block recovery as the primary node |
//! | `snapshots` | snapshots that the node takes by itself |
//! | [`daemon`] | start, run and stop of all of it |

pub mod activity;
pub mod daemon;
mod http;
pub mod identity;
pub mod ipc;
pub mod log_levels;
pub mod memory;
pub mod namenode;
pub mod outliers;
pub mod recovery;
mod snapshots;
pub mod store_config;
pub mod xceiver;
