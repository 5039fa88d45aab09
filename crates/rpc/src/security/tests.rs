//! What tests of both sides use.

use std::sync::Arc;
use std::time::Duration;

use hayloft_gss::GssError;

use super::wrapping::{INLINE_BYTES, Layer, Wrapping};

/// Wraps nothing, and takes a while for large messages.
pub(crate) struct Plain(pub(crate) Duration);

impl Plain {
    /// A wrapping by it, with messages of at most `plain_max` bytes.
    pub(crate) fn wrapping(plain_max: usize) -> Arc<Wrapping> {
        Wrapping::with(Self(Duration::ZERO), true, plain_max)
    }
}

impl Layer for Plain {
    fn wrap(&mut self, data: &[u8], _secret: bool) -> Result<Vec<u8>, GssError> {
        if data.len() > INLINE_BYTES {
            std::thread::sleep(self.0);
        }
        Ok(data.to_vec())
    }

    fn unwrap(&mut self, data: &[u8]) -> Result<(Vec<u8>, bool), GssError> {
        Ok((data.to_vec(), true))
    }
}
