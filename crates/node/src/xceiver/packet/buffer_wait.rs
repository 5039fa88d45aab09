//! The wait of a stream for a receive buffer.

use std::sync::Weak;
use std::time::Duration;

use hayloft_io::{AlignedBuf, BufferPool};
use tokio::time::Instant;

use crate::xceiver::error::XferError;

/// Buffers between these sizes, adapted to how fast packets come. The smaller one holds a packet of
/// the usual 64 KiB, the larger one is as much as a disk is given at a time.
pub const BUFFER_MIN: usize = 128 << 10;
pub const BUFFER_MAX: usize = 512 << 10;

/// How often a stream without memory looks whether its own batches are gone.
const MEMORY_NAP: Duration = Duration::from_millis(5);

/// How long a packet that needs more than the usual buffer is let wait for it, where a silent peer
/// is let wait for ever.
const MEMORY_WAIT: Duration = Duration::from_secs(60);

/// A buffer that a stream waits for.
pub struct BufferWait {
    pub pool: BufferPool,
    /// Bytes wanted.
    pub size: usize,
    /// Bytes that the stream holds already.
    pub filled: usize,
    /// The stream's batches that are in use, besides the stream itself.
    pub batches: Weak<()>,
    /// How long a peer may be silent.
    pub limit: Option<Duration>,
    pub peer: String,
}

impl BufferWait {
    /// Waits. A stream that has nothing else in use gets a small buffer of its own at once.
    pub async fn buffer(self) -> Result<AlignedBuf, XferError> {
        let limit = self.limit.unwrap_or(MEMORY_WAIT);
        let deadline = Instant::now() + limit;
        let pooled = self.pool.acquire(self.size);
        tokio::pin!(pooled);
        loop {
            if self.size <= BUFFER_MAX && self.batches.strong_count() <= 1 {
                let size = self.size.min(BUFFER_MIN).max(self.filled + 1);
                return Ok(AlignedBuf::unpooled(size));
            }
            if let Ok(result) = tokio::time::timeout(MEMORY_NAP, &mut pooled).await {
                return result.map_err(|e| XferError::protocol(self.peer, e));
            }
            if self.size > BUFFER_MAX && Instant::now() >= deadline {
                return Err(XferError::NoMemory {
                    peer: self.peer,
                    bytes: self.size,
                    seconds: limit.as_secs(),
                });
            }
        }
    }
}
