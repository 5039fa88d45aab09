//! A cluster of real processes kept in one directory.
//!
//! ```text
//! .hayloft/
//!   cluster.json    who is in the cluster: ports, process identities, what was copied in
//!   lock            held by the command that changes the cluster
//!   conf/           HADOOP_CONF_DIR for clients
//!   logs/           logs of clients
//!   namenode/       conf/, name/, namenode.log
//!   kdc/            with --secure: realm, keytabs, key of TLS; for its owner alone
//!   node-N/         conf/, data/, log
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `state_directory` | the directory and `cluster.json` |
//! | `secure` | with `--secure`: who proves what to whom, and by which files |
//! | `start_processes` | start and stop of each process, as it is on record |
//! | `tour` | copy in, read back, compare, search |
//! | `up`, `down`, `status`, `fs` | the commands |

pub mod down;
pub mod fs;
mod secure;
mod start_processes;
mod state_directory;
pub mod status;
mod tour;
pub mod up;
