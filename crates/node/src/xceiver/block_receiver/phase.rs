//! How far the receiving of a block is, and what follows.

use std::pin::Pin;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, Sleep};

/// How far the receiving is.
pub enum Receiving<'a> {
    /// Packets are expected.
    Open,
    /// The limit on bandwidth has to be waited for.
    Throttled(BoxFuture<'a, ()>, After, Instant),
    /// A copy has its last packet: nothing more is read.
    Complete,
    /// What the client still sends no longer counts: the receiver drops it until the client leaves.
    Discarding(After),
    /// The client has left; the block can still become complete here and at the mirror.
    ClientGone(Pin<Box<Sleep>>),
}

/// What follows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// More packets.
    More,
    /// The block had its last packet.
    Last,
    /// The data was corrupt.
    Corrupt,
}
