//! Block recovery as the primary node.
