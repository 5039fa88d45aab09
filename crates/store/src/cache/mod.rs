//! Replicas that a NameNode has ordered into memory: locked there, verified, and reported only
//! then.
//!
//! - `load`: one replica into memory, by the threads of its disk
//! - `orders`: what a NameNode orders, and what it is told
//! - `queues`: what waits for the workers of a volume
//! - `uncached`: where memory is given back that may be the last to hold a deleted file
//!
//! Room is reserved when the order comes. So what waits is limited as what is cached is, and a
//! replica that does not fit is refused at once. The replica map drops what is cached of a block
//! when the block changes.

mod load;
mod orders;
mod queues;
mod uncached;

pub(crate) use orders::{cache, uncache};
pub(crate) use queues::CacheQueues;
pub(crate) use uncached::uncache_all;
