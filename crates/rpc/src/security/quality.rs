//! What is agreed at the end of a SASL exchange by GSSAPI (RFC 4752, section 3).
//!
//! The server wraps four bytes: the layers that it has as bits, then the largest wrapped message
//! that it takes, 24 bits. The client wraps its choice in the same form; a name to act as may
//! follow, which Hadoop leaves out.

/// What protects the bytes of an RPC connection after authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RpcQuality {
    /// Nothing more (`authentication`).
    Authentication,
    /// A checksum with a key on each message (`integrity`).
    Integrity,
    /// Encryption and a checksum (`privacy`).
    Privacy,
}

impl RpcQuality {
    /// The bit of this layer.
    #[must_use]
    pub const fn bit(self) -> u8 {
        match self {
            Self::Authentication => 1,
            Self::Integrity => 2,
            Self::Privacy => 4,
        }
    }

    /// Whether messages are wrapped.
    #[must_use]
    pub const fn wraps(self) -> bool {
        !matches!(self, Self::Authentication)
    }

    /// The value of `hadoop.rpc.protection` for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Authentication => "authentication",
            Self::Integrity => "integrity",
            Self::Privacy => "privacy",
        }
    }

    /// Reads the value of `hadoop.rpc.protection`: names with commas, the most wanted first. Names
    /// are read without regard to case, as Apache's node does.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn list(text: &str) -> Result<Vec<Self>, String> {
        let all = [Self::Authentication, Self::Integrity, Self::Privacy];
        let one = |name: &str| {
            let found = all
                .into_iter()
                .find(|quality| quality.name().eq_ignore_ascii_case(name));
            found.ok_or_else(|| {
                format!(
                    "hadoop.rpc.protection has {name:?}: it takes authentication, integrity and \
                     privacy, with commas between them"
                )
            })
        };
        let names = text
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        let found = names.map(one).collect::<Result<Vec<_>, _>>()?;
        Ok(if found.is_empty() {
            vec![Self::Authentication]
        } else {
            found
        })
    }
}

/// Largest wrapped message that we say we take, bytes: what the JDK says.
pub(crate) const WRAPPED_MAX: u32 = 65_536;

/// Layers and a size, as both sides of the end of the exchange send them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerOffer {
    /// Layers as bits: several in a server's offer, one in a client's choice.
    pub bits: u8,
    /// Largest wrapped message that the sender takes, bytes, below 2^24.
    pub size: u32,
}

impl LayerOffer {
    /// What a server with these qualities offers.
    #[must_use]
    pub fn of(qualities: &[RpcQuality]) -> Self {
        let bits = qualities
            .iter()
            .fold(0, |bits, quality| bits | quality.bit());
        // Without a layer the size means nothing and has to be zero.
        let size = if bits == 1 { 0 } else { WRAPPED_MAX };
        Self { bits, size }
    }

    /// The four bytes.
    #[must_use]
    pub const fn encode(self) -> [u8; 4] {
        let [_, a, b, c] = self.size.to_be_bytes();
        [self.bits, a, b, c]
    }

    /// Reads four bytes, and whether more follow them: a name to act as.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (&[bits, a, b, c], rest) = bytes.split_first_chunk::<4>()?;
        let size = u32::from_be_bytes([0, a, b, c]);
        Some((Self { bits, size }, rest))
    }

    /// The quality in `wanted` that comes first and is on offer.
    #[must_use]
    pub fn choose(self, wanted: &[RpcQuality]) -> Option<RpcQuality> {
        let on_offer = |quality: &&RpcQuality| self.bits & quality.bit() != 0;
        wanted.iter().find(on_offer).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_read_in_order() {
        let all = RpcQuality::list("privacy, Integrity,authentication").unwrap();
        let wanted = [
            RpcQuality::Privacy,
            RpcQuality::Integrity,
            RpcQuality::Authentication,
        ];
        assert_eq!(all, wanted);
        assert_eq!(RpcQuality::list("").unwrap(), [RpcQuality::Authentication]);
        assert!(RpcQuality::list("auth").unwrap_err().contains("\"auth\""));
    }

    #[test]
    fn the_end_of_the_exchange_has_four_bytes() {
        let offer = LayerOffer::of(&[RpcQuality::Integrity, RpcQuality::Privacy]);
        assert_eq!(offer.encode(), [6, 1, 0, 0]);
        assert_eq!(
            LayerOffer::of(&[RpcQuality::Authentication]).encode(),
            [1, 0, 0, 0]
        );
        let (read, rest) = LayerOffer::decode(&[7, 0xff, 0xff, 0xff, b'a']).unwrap();
        assert_eq!(
            (read.bits, read.size, rest),
            (7, 0xff_ffff, b"a".as_slice())
        );
        assert!(LayerOffer::decode(&[1, 0, 0]).is_none());
    }

    #[test]
    fn the_first_wanted_quality_on_offer_is_chosen() {
        let offer = LayerOffer { bits: 6, size: 0 };
        let wanted = [
            RpcQuality::Authentication,
            RpcQuality::Privacy,
            RpcQuality::Integrity,
        ];
        assert_eq!(offer.choose(&wanted), Some(RpcQuality::Privacy));
        assert_eq!(offer.choose(&[RpcQuality::Authentication]), None);
    }

    proptest! {
        #[test]
        fn offers_come_back(bits in 0u8..8, size in 0u32..1 << 24) {
            let offer = LayerOffer { bits, size };
            let bytes = offer.encode();
            prop_assert_eq!(LayerOffer::decode(&bytes), Some((offer, [].as_slice())));
        }
    }
}
