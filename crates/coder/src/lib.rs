//! Erasure codes: parity of data units, and lost units from those that are left.
//!
//! - `codec`: the codes by their names in HDFS
//! - `coder`: a code of one shape: encode, update, reconstruct
//! - `error`: what a coder refuses
//! - `matrix`: matrices over the field of 256 elements: those of the codes, and the way back
//! - `plans`: matrices that reconstruct, remembered: the pieces of a unit all need the same one
//! - `tables`: ISA-L's kernel, with the lengths that it trusts checked
//!
//! Every code here is linear over the field of 256 elements that HDFS and ISA-L share, so one
//! kernel of ISA-L computes all of them. Only the matrix of a code differs. The bytes are those of
//! Hadoop 3.5.0's own coders: its clients decode what a [`Coder`] encodes, and the reverse.
//!
//! A coder looks at the same byte of all units at a time. So units of one call have one length, and
//! a longer unit may be coded in pieces of any length, in any order.
//!
//! This crate has no unsafe code: the binding crate `erasure-isa-l` has it. That crate's functions
//! trust the lengths that they are given. So the module `tables` is the only caller of those that
//! touch buffers, and checks them.

#![forbid(unsafe_code)]

mod codec;
mod coder;
mod error;
mod matrix;
mod plans;
mod tables;

pub use codec::Codec;
pub use coder::Coder;
pub use error::CoderError;
