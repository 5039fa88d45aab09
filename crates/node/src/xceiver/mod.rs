//! The data transfer port.
