//! The codes by their names in HDFS.

use std::fmt;

/// An erasure code. The names are those of an erasure coding policy's schema, and of Hadoop's keys
/// `io.erasurecode.codec.*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// `rs`: Reed-Solomon with a Cauchy matrix, as ISA-L makes it.
    ReedSolomon,
    /// `rs-legacy`: Reed-Solomon by a generating polynomial, as HDFS-RAID had it.
    ReedSolomonLegacy,
    /// `xor`: one parity unit, the sum of the data units.
    Xor,
}

impl Codec {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::ReedSolomon, Self::ReedSolomonLegacy, Self::Xor];

    /// The code of this name in a policy's schema. Capitals do not matter, as in Hadoop.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|codec| codec.name().eq_ignore_ascii_case(name))
    }

    /// Its name in a policy's schema.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReedSolomon => "rs",
            Self::ReedSolomonLegacy => "rs-legacy",
            Self::Xor => "xor",
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Codec;

    #[test]
    fn names_are_those_of_hadoop() {
        for codec in Codec::ALL {
            assert_eq!(Codec::by_name(codec.name()), Some(codec));
            assert_eq!(
                Codec::by_name(&codec.to_string().to_uppercase()),
                Some(codec)
            );
        }
        assert_eq!(Codec::by_name("dummy"), None);
    }
}
