//! What a coder refuses.

use crate::Codec;

/// Why a coder was not made, or did not code. Nothing was written to any buffer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CoderError {
    /// No such shape.
    #[error(
        "{codec} takes at least 1 data unit, {parity}, and at most 255 units together: \
         not {data_units} + {parity_units}",
        parity = parity_rule(.codec),
    )]
    Shape {
        /// The code.
        codec: Codec,
        /// Data units asked for.
        data_units: usize,
        /// Parity units asked for.
        parity_units: usize,
    },
    /// A number of buffers that does not belong to the shape.
    #[error("{given} {what} given, where the code has {expected}")]
    Count {
        /// What was counted.
        what: &'static str,
        /// How many came.
        given: usize,
        /// How many belong there.
        expected: usize,
    },
    /// Buffers that are not all of one length.
    #[error("a buffer of {given} bytes beside one of {expected}: all units of a call are as long")]
    Length {
        /// Bytes of the buffer that differs.
        given: usize,
        /// Bytes of the first buffer.
        expected: usize,
    },
    /// A unit that the code does not have.
    #[error("unit {unit} does not exist: the code has units 0 to {last}")]
    NoSuchUnit {
        /// The index that was given.
        unit: usize,
        /// The last index of a unit.
        last: usize,
    },
    /// A unit that is named twice, or both given and wanted.
    #[error("unit {unit} is named twice")]
    Twice {
        /// The index.
        unit: usize,
    },
    /// Fewer units are left than there are data units.
    #[error("{given} units are left and {needed} are needed: the lost ones cannot be decoded")]
    TooFew {
        /// Units that were given.
        given: usize,
        /// Data units of the code.
        needed: usize,
    },
    /// The units that are left do not determine the others.
    #[error("units {sources:?} do not determine the others: give others of the group")]
    Undetermined {
        /// The units that were given.
        sources: Vec<usize>,
    },
}

fn parity_rule(codec: &Codec) -> &'static str {
    if *codec == Codec::Xor {
        "1 parity unit"
    } else {
        "at least 1 parity unit"
    }
}
