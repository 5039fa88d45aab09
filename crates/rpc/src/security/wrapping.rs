//! Frames inside `WRAP` messages, once integrity or privacy is agreed.
//!
//! What is wrapped is a stream: one message may hold a part of a frame, or several frames.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hayloft_gss::{GssContext, GssError};
use hayloft_wire::rpc::{RpcSasl, SaslState};
use tokio::sync::Mutex;

use super::quality::{RpcQuality, WRAPPED_MAX};

/// Larger pieces are wrapped and unwrapped on a thread that may block.
pub(super) const INLINE_BYTES: usize = 256 << 10;
/// Least that a peer has to take in one message, bytes: a smaller size would multiply what is sent.
const PEER_MIN: u32 = 4 << 10;

/// What protects the messages of one connection, both ways.
pub(crate) trait Layer: Send {
    /// Protects `data`; with `secret` encrypts it, too.
    fn wrap(&mut self, data: &[u8], secret: bool) -> Result<Vec<u8>, GssError>;

    /// What the peer wrapped, and whether it was encrypted.
    fn unwrap(&mut self, data: &[u8]) -> Result<(Vec<u8>, bool), GssError>;
}

impl Layer for GssContext {
    fn wrap(&mut self, data: &[u8], secret: bool) -> Result<Vec<u8>, GssError> {
        Self::wrap(self, data, secret)
    }

    fn unwrap(&mut self, data: &[u8]) -> Result<(Vec<u8>, bool), GssError> {
        Self::unwrap(self, data)
    }
}

/// The two ways of one connection.
pub(crate) struct Wrapping {
    /// Who has to wait for it holds up no thread.
    layer: Arc<Mutex<dyn Layer>>,
    secret: bool,
    /// Most bytes in one message of ours.
    plain_max: usize,
}

impl Wrapping {
    /// `None` for a quality that wraps nothing. `peer_max`: the largest wrapped message that the
    /// peer takes.
    pub(crate) fn new(
        mut context: GssContext,
        quality: RpcQuality,
        peer_max: u32,
    ) -> Result<Option<Arc<Self>>, GssError> {
        if !quality.wraps() {
            return Ok(None);
        }
        let secret = quality == RpcQuality::Privacy;
        context.protects(secret)?;
        let plain_max = context.plain_max(secret, usable_size(peer_max)?)?;
        let plain_max = usize::try_from(plain_max).unwrap_or(usize::MAX).max(1);
        Ok(Some(Self::with(context, secret, plain_max)))
    }

    /// By a layer that is agreed already.
    pub(crate) fn with(layer: impl Layer + 'static, secret: bool, plain_max: usize) -> Arc<Self> {
        Arc::new(Self {
            layer: Arc::new(Mutex::new(layer)),
            secret,
            plain_max,
        })
    }

    /// Wraps frames into messages that the peer's size allows, each framed by `encode`.
    pub(crate) async fn wrap_in_pieces(
        &self,
        frames: Bytes,
        encode: fn(&RpcSasl) -> Bytes,
    ) -> Result<Bytes, GssError> {
        self.wrap(frames, self.plain_max, encode).await
    }

    /// Wraps frames into one message, whatever its size: what a Java server does.
    pub(crate) async fn wrap_whole(
        &self,
        frames: Bytes,
        encode: fn(&RpcSasl) -> Bytes,
    ) -> Result<Bytes, GssError> {
        self.wrap(frames, usize::MAX, encode).await
    }

    async fn wrap(
        &self,
        frames: Bytes,
        piece: usize,
        encode: fn(&RpcSasl) -> Bytes,
    ) -> Result<Bytes, GssError> {
        let (secret, length) = (self.secret, frames.len());
        let wrap = move |layer: &mut dyn Layer| {
            let mut out = BytesMut::with_capacity(frames.len() + 256);
            for piece in frames.chunks(piece) {
                let token = layer.wrap(piece, secret)?;
                out.extend_from_slice(&encode(&RpcSasl::step(SaslState::Wrap, token)));
            }
            Ok(out.freeze())
        };
        self.by_layer(length, wrap).await
    }

    /// What the peer wrapped into `message`.
    pub(crate) async fn unwrap(&self, message: Bytes) -> Result<Vec<u8>, GssError> {
        let demanded = self.secret;
        let length = message.len();
        let unwrap = move |layer: &mut dyn Layer| {
            let (plain, secret) = layer.unwrap(&message)?;
            if demanded && !secret {
                return Err(GssError::NotSecret);
            }
            Ok(plain)
        };
        self.by_layer(length, unwrap).await
    }

    /// Works on `length` bytes: at once, or on a thread that may block.
    async fn by_layer<T: Send + 'static>(
        &self,
        length: usize,
        work: impl FnOnce(&mut dyn Layer) -> Result<T, GssError> + Send + 'static,
    ) -> Result<T, GssError> {
        let mut layer = Arc::clone(&self.layer).lock_owned().await;
        if length <= INLINE_BYTES {
            return work(&mut *layer);
        }
        let worked = tokio::task::spawn_blocking(move || work(&mut *layer)).await;
        // A panic there is told by its own message; here nothing came of it.
        worked.unwrap_or(Err(GssError::Incomplete))
    }
}

/// The size that a peer said, of which 0 says none.
fn usable_size(peer_max: u32) -> Result<u32, GssError> {
    match peer_max {
        0 => Ok(WRAPPED_MAX),
        PEER_MIN.. => Ok(peer_max),
        _ => Err(GssError::SmallMessages(peer_max)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::security::tests::Plain;

    #[tokio::test]
    async fn a_large_answer_holds_up_no_async_thread() {
        let wrapping = Wrapping::with(Plain(Duration::from_millis(500)), true, 1 << 10);
        let large = Bytes::from(vec![7; INLINE_BYTES + 1]);
        let answering = {
            let wrapping = Arc::clone(&wrapping);
            let encode = hayloft_wire::rpc::encode_sasl_response;
            tokio::spawn(async move { wrapping.wrap_whole(large, encode).await })
        };
        tokio::task::yield_now().await;
        let small = tokio::spawn(async move { wrapping.unwrap(Bytes::from_static(b"x")).await });
        // The one thread of this test goes on while both are under way.
        let begun = std::time::Instant::now();
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(begun.elapsed() < Duration::from_millis(300));
        assert!(!answering.is_finished() && !small.is_finished());
        assert_eq!(small.await.unwrap().unwrap(), b"x");
        assert!(answering.await.unwrap().unwrap().len() > INLINE_BYTES);
    }

    #[test]
    fn a_peer_that_takes_a_few_bytes_is_refused() {
        assert_eq!(usable_size(0), Ok(WRAPPED_MAX));
        assert_eq!(usable_size(1 << 16), Ok(1 << 16));
        assert_eq!(usable_size(1), Err(GssError::SmallMessages(1)));
    }
}
