//! Frames inside `WRAP` messages, once integrity or privacy is agreed.
//!
//! What is wrapped is a stream: one message may hold a part of a frame, or several frames.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use hayloft_gss::{GssContext, GssError};
use hayloft_wire::rpc::{RpcSasl, SaslState};

use super::quality::{RpcQuality, WRAPPED_MAX};

/// Larger pieces are wrapped and unwrapped on a thread that may block.
const INLINE_BYTES: usize = 256 << 10;

/// The two ways of one connection.
pub(crate) struct Wrapping {
    context: Mutex<GssContext>,
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
        let peer_max = if peer_max == 0 { WRAPPED_MAX } else { peer_max };
        let plain_max = context.plain_max(secret, peer_max)?;
        Ok(Some(Arc::new(Self {
            context: Mutex::new(context),
            secret,
            plain_max: usize::try_from(plain_max).unwrap_or(usize::MAX).max(1),
        })))
    }

    /// Wraps frames into messages that the peer's size allows, each framed by `encode`.
    pub(crate) async fn wrap_in_pieces(
        self: &Arc<Self>,
        frames: Bytes,
        encode: fn(&RpcSasl) -> Bytes,
    ) -> Result<Bytes, GssError> {
        let pieces = self.plain_max;
        self.wrap(frames, pieces, encode).await
    }

    /// Wraps frames into one message, whatever its size: what a Java server does.
    pub(crate) async fn wrap_whole(
        self: &Arc<Self>,
        frames: Bytes,
        encode: fn(&RpcSasl) -> Bytes,
    ) -> Result<Bytes, GssError> {
        self.wrap(frames, usize::MAX, encode).await
    }

    async fn wrap(
        self: &Arc<Self>,
        frames: Bytes,
        piece: usize,
        encode: fn(&RpcSasl) -> Bytes,
    ) -> Result<Bytes, GssError> {
        let wrapping = Arc::clone(self);
        let length = frames.len();
        let wrap = move || {
            let mut context = wrapping
                .context
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let mut out = BytesMut::with_capacity(frames.len() + 256);
            for piece in frames.chunks(piece) {
                let token = context.wrap(piece, wrapping.secret)?;
                out.extend_from_slice(&encode(&RpcSasl::step(SaslState::Wrap, token)));
            }
            Ok(out.freeze())
        };
        inline_or_off(length, wrap).await
    }

    /// What the peer wrapped into `message`.
    pub(crate) async fn unwrap(self: &Arc<Self>, message: Bytes) -> Result<Vec<u8>, GssError> {
        let wrapping = Arc::clone(self);
        let length = message.len();
        let unwrap = move || {
            let mut context = wrapping
                .context
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let (plain, secret) = context.unwrap(&message)?;
            if wrapping.secret && !secret {
                return Err(GssError::NotSecret);
            }
            Ok(plain)
        };
        inline_or_off(length, unwrap).await
    }
}

async fn inline_or_off<T: Send + 'static>(
    length: usize,
    work: impl FnOnce() -> Result<T, GssError> + Send + 'static,
) -> Result<T, GssError> {
    if length <= INLINE_BYTES {
        return work();
    }
    let worked = tokio::task::spawn_blocking(work).await;
    // A panic there is told by its own message; here nothing came of it.
    worked.unwrap_or(Err(GssError::Incomplete))
}
