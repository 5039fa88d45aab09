//! Parity of members, and lost units from the others.

use hayloft_coder::{Codec, Coder, CoderError};
use hayloft_wire::checksum::{ChecksumKind, DataChecksum};

use crate::shape::ParityShape;

/// Bytes of a parity file that have a checksum together. A small range of a lost unit is decoded
/// from whole pieces, so they are not large.
pub const PARITY_PIECE: u32 = 64 << 10;

/// How a parity file is checksummed: its section in a record is as a meta file of these.
#[must_use]
pub fn parity_checksum() -> DataChecksum {
    DataChecksum::new(ChecksumKind::Crc32c, PARITY_PIECE).expect("a possible piece")
}

/// The code of groups of one shape. Several threads may use it at once.
#[derive(Debug)]
pub struct GroupCode {
    shape: ParityShape,
    coder: Coder,
}

impl GroupCode {
    /// XOR where one parity file is enough, else Reed-Solomon, as HDFS codes striped files.
    ///
    /// # Panics
    /// Never: each shape is one of a code.
    #[must_use]
    pub fn new(shape: ParityShape) -> Self {
        let codec = match shape.parity() {
            1 => Codec::Xor,
            _ => Codec::ReedSolomon,
        };
        let coder = Coder::new(codec, shape.data(), shape.parity());
        let coder =
            coder.expect("fewer units than a code has elements, and one parity unit of XOR");
        Self { shape, coder }
    }

    /// Its shape.
    #[must_use]
    pub fn shape(&self) -> ParityShape {
        self.shape
    }

    /// Computes the same range of all parity files from that of the members. Missing members are
    /// zeros. All slices are as long as each other.
    ///
    /// # Errors
    /// Too many members, too few parity files, or slices of other lengths.
    pub fn encode(&self, members: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), CoderError> {
        let len = parity.first().map_or(0, |p| p.len());
        let zeros = vec![
            0;
            if members.len() < self.shape.data() {
                len
            } else {
                0
            }
        ];
        let mut units = members.to_vec();
        units.resize(self.shape.data().max(members.len()), &zeros);
        self.coder.encode(&units, parity)
    }

    /// The units to decode `wanted` from, out of a group of `members`; those that count as zeros
    /// among them. `available` says which units can be read, and `wanted` is never among them.
    /// Members are preferred, so that healthy reads and decodes share pages. `None` when too few
    /// are left.
    #[must_use]
    pub fn sources(
        &self,
        members: usize,
        wanted: usize,
        available: impl Fn(usize) -> bool,
    ) -> Option<Vec<usize>> {
        let zero = |unit: usize| (members..self.shape.data()).contains(&unit);
        let units = (0..self.shape.units()).filter(|unit| *unit != wanted);
        let units: Vec<usize> = units
            .filter(|unit| zero(*unit) || available(*unit))
            .take(self.shape.data())
            .collect();
        (units.len() == self.shape.data()).then_some(units)
    }

    /// Whether each unit in `lost` can be decoded from the others of a group.
    #[must_use]
    pub fn decodes(&self, lost: usize) -> bool {
        lost <= self.shape.parity()
    }

    /// Computes a range of unit `wanted` from that of its [`sources`](Self::sources); a source that
    /// counts as zeros is given as zeros.
    ///
    /// # Errors
    /// Too few sources, units named twice, or slices of other lengths.
    pub fn decode(
        &self,
        sources: &[(usize, &[u8])],
        wanted: usize,
        out: &mut [u8],
    ) -> Result<(), CoderError> {
        self.coder.reconstruct(sources, &[wanted], &mut [out])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(seed: usize, len: usize) -> Vec<u8> {
        let byte = |i: usize| u8::try_from((i * 31 + seed * 97 + i / 7) % 256).expect("a byte");
        (0..len).map(byte).collect()
    }

    proptest! {
        /// Whichever units of a group are lost, up to M of them, each comes back from the rest.
        #[test]
        fn any_lost_unit_comes_back(
            data in 1..9_u8, fewer in 0..8_u8, parity in 1..4_u8, len in 1..300_usize,
            lost in proptest::collection::btree_set(0..12_usize, 1..4),
        ) {
            let shape = ParityShape::new(data, parity).expect("valid");
            let code = GroupCode::new(shape);
            let members = usize::from(data.saturating_sub(fewer).max(1));
            let mut units: Vec<Vec<u8>> = (0..members).map(|n| bytes(n, len)).collect();
            units.resize(shape.data(), vec![0; len]);
            let mut coded = vec![vec![0; len]; shape.parity()];
            let slices: Vec<&[u8]> = units[..members].iter().map(Vec::as_slice).collect();
            let mut into: Vec<&mut [u8]> = coded.iter_mut().map(Vec::as_mut_slice).collect();
            code.encode(&slices, &mut into).expect("encodes");
            units.extend(coded);
            let lost: Vec<usize> = lost.into_iter()
                .filter(|u| *u < shape.units() && !(members..shape.data()).contains(u))
                .collect();
            for &wanted in &lost {
                let sources = code.sources(members, wanted, |unit| !lost.contains(&unit));
                prop_assert_eq!(sources.is_some(), code.decodes(lost.len()));
                let Some(sources) = sources else { continue };
                let sources: Vec<(usize, &[u8])> =
                    sources.into_iter().map(|u| (u, units[u].as_slice())).collect();
                let mut out = vec![0xff; len];
                code.decode(&sources, wanted, &mut out).expect("decodes");
                prop_assert!(out == units[wanted]);
            }
        }
    }

    #[test]
    fn more_members_than_the_shape_has_are_refused() {
        let code = GroupCode::new(ParityShape::new(2, 1).expect("valid"));
        let unit: &[u8] = &[1, 2];
        let mut out = [0; 2];
        assert!(code.encode(&[unit; 3], &mut [&mut out]).is_err());
        assert!(code.encode(&[unit, &[1]], &mut [&mut out]).is_err());
    }
}
