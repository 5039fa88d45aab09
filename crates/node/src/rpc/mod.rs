//! Hadoop RPC, client side.
