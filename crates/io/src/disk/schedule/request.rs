//! What the scheduler is told of a disk and of a request, and what it answers.

use std::time::{Duration, Instant};

use crate::class::IoClass;
use crate::disk::media::Media;

/// Shares of a busy disk by class.
pub(super) const WEIGHTS: [u64; IoClass::COUNT] = {
    let mut weights = [0; IoClass::COUNT];
    weights[IoClass::ClientWrite as usize] = 32;
    weights[IoClass::ClientRead as usize] = 32;
    weights[IoClass::Replication as usize] = 12;
    weights[IoClass::Balancer as usize] = 3;
    weights[IoClass::Scan as usize] = 1;
    weights[IoClass::Delete as usize] = 2;
    weights
};

/// After this a request of the class goes first.
pub(in crate::disk) const DEADLINES: [Duration; IoClass::COUNT] = {
    let mut deadlines = [Duration::ZERO; IoClass::COUNT];
    deadlines[IoClass::ClientWrite as usize] = Duration::from_secs(1);
    deadlines[IoClass::ClientRead as usize] = Duration::from_millis(300);
    deadlines[IoClass::Replication as usize] = Duration::from_secs(3);
    deadlines[IoClass::Balancer as usize] = Duration::from_secs(10);
    deadlines[IoClass::Scan as usize] = Duration::from_secs(20);
    deadlines[IoClass::Delete as usize] = Duration::from_secs(10);
    deadlines
};

/// How a disk is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Decides between streams and a plain depth.
    pub media: Media,
    /// Bytes served to one stream before the disk turns to another. Rotating only.
    pub quantum: u64,
    /// Requests on the device at once. Flash only.
    pub depth: usize,
    /// Requests at once that do not reach the device.
    pub cached_max: usize,
    /// Requests of background classes at once, when no client wants anything.
    pub background_max: usize,
    /// How long a rotating disk waits for more of the stream it serves.
    pub anticipation: Duration,
}

/// A place in a file on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    /// The file; numbers near each other are near each other on the device.
    pub id: u64,
    /// Where in the file, in bytes.
    pub offset: u64,
}

/// What is known of a request before it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// On whose behalf.
    pub class: IoClass,
    /// `None` when it does not reach the device.
    pub stream: Option<Stream>,
    /// An estimate of what it moves.
    pub bytes: u64,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub request: Request,
    pub queued: Instant,
    pub served: Instant,
}

/// The answer to "what next".
#[derive(Debug)]
pub(crate) enum Next<T> {
    /// This one, now.
    Serve(Ticket, T),
    /// Nothing now; ask again at this time, or when something was queued or has ended.
    At(Instant),
    /// Nothing until something was queued or has ended.
    Nothing,
}
