//! Frames inside the layer of DIGEST-MD5, which holders of tokens agree on.

use std::sync::Arc;

use bytes::BytesMut;
use hayloft_gss::GssError;
use hayloft_sasl::{Agreed, Opener, SaslQuality, Sealer};

use super::quality::RpcQuality;
use super::wrapping::{Layer, Wrapping};

/// The same qualities by their names in DIGEST-MD5.
pub(crate) fn in_digest(qualities: &[RpcQuality]) -> Vec<SaslQuality> {
    let one = |quality: &RpcQuality| match quality {
        RpcQuality::Authentication => SaslQuality::Authentication,
        RpcQuality::Integrity => SaslQuality::Integrity,
        RpcQuality::Privacy => SaslQuality::Privacy,
    };
    qualities.iter().map(one).collect()
}

impl Wrapping {
    /// What a handshake agreed on, in messages of at most `plain_max` bytes of ours; `None` where
    /// that is nothing.
    pub(crate) fn by_digest(agreed: Agreed, plain_max: usize) -> Option<Arc<Self>> {
        let (sealer, opener) = agreed.layer?;
        let secret = agreed.quality == SaslQuality::Privacy;
        Some(Self::with(
            DigestLayer { sealer, opener },
            secret,
            plain_max,
        ))
    }
}

/// The layer of DIGEST-MD5.
struct DigestLayer {
    sealer: Sealer,
    opener: Opener,
}

impl Layer for DigestLayer {
    fn wrap(&mut self, data: &[u8], _secret: bool) -> Result<Vec<u8>, GssError> {
        let mut out = BytesMut::new();
        self.sealer.seal(data, &mut out);
        Ok(out.to_vec())
    }

    fn unwrap(&mut self, data: &[u8]) -> Result<(Vec<u8>, bool), GssError> {
        let opened = self.opener.open(BytesMut::from(data));
        // What was agreed holds for every message.
        let opened = opened.map_err(|_| GssError::Incomplete)?;
        Ok((opened.to_vec(), true))
    }
}
