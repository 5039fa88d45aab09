//! The RPC server of the node.
