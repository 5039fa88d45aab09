//! Start, run and stop of a node.
