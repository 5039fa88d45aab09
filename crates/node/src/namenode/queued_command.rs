//! What waits for the command task of a pool.

use hayloft_store::RollingUpgradeState;
use hayloft_wire::proto::datanode::DatanodeCommand;

/// Commands that wait, per pool. A NameNode gives few at a time and repeats what was not done.
pub(super) const QUEUE: usize = 1024;

/// Something for the command task.
#[derive(Debug)]
pub(super) enum Order {
    /// A command of a NameNode.
    Command {
        /// The actor that received it.
        from: u64,
        /// That NameNode's address.
        address: String,
        /// The command.
        command: Box<DatanodeCommand>,
    },
    /// How a rolling upgrade stands, which the store does not know yet.
    RollingUpgrade(RollingUpgradeState),
}
