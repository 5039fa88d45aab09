//! The service times of a hard disk, as a pure function of its state and a request.
//!
//! Time is in nanoseconds since some beginning, positions in bytes from the start of the disk.
//!
//! - **Seek**: from the shortest to the longest with the square root of the distance, such that
//!   the mean over random pairs of places is the average seek of the data sheet.
//! - **Rotation**: every place has an angle, the platter turns with the clock, and the head waits
//!   until the place comes by. A track holds what passes the head in one turn; the offset from
//!   track to track is such that a sequential transfer loses nothing.
//! - **Short forward gaps** pass under the head when that is sooner than positioning anew.
//! - **The drive's buffer** hides pauses of the host within a sequential stream: while the host
//!   thinks, the drive reads ahead or writes what it has accepted, up to its buffer's size.
//! - **Command queueing**: of the oldest requests the one that can be reached first, but of
//!   requests that go on from each other the first; one that has waited for longer than the
//!   drive's patience goes before all.
//!
//! Left out: zones (inner tracks are slower), defects, recalibration, and the early
//! acknowledgement of writes: a write is answered when it is on the platter, so a flush is free.

use serde::{Deserialize, Serialize};

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// What kind of disk.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Params {
    /// Sequential reading, bytes a second. Default 105 MB/s.
    pub read_bytes_s: u64,
    /// Sequential writing, bytes a second. Default 95 MB/s.
    pub write_bytes_s: u64,
    /// Seek averaged over random pairs of places, microseconds. Default 8500.
    pub seek_average_us: u64,
    /// Shortest seek, to the next track, microseconds. Default 800.
    pub seek_shortest_us: u64,
    /// Turns a minute. Default 7200.
    pub rpm: u64,
    /// The drive's buffer, bytes. Default 8 MiB.
    pub buffer_bytes: u64,
    /// Between host and drive, bytes a second. Default 300 MB/s.
    pub interface_bytes_s: u64,
    /// Requests among which the drive chooses. Default 32; 1 is a drive without queueing.
    pub queue_depth: usize,
    /// A request older than this goes before nearer ones, microseconds. Default 400,000: above
    /// what a full queue of random requests takes.
    pub patience_us: u64,
    /// How long the drive tries again what it cannot read before it says so, microseconds. Default
    /// 0. It cannot read what its backing file has lost.
    #[serde(default)]
    pub retries_us: u64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            read_bytes_s: 105_000_000,
            write_bytes_s: 95_000_000,
            seek_average_us: 8_500,
            seek_shortest_us: 800,
            rpm: 7_200,
            buffer_bytes: 8 << 20,
            interface_bytes_s: 300_000_000,
            queue_depth: 32,
            patience_us: 400_000,
            retries_us: 0,
        }
    }
}

impl Params {
    /// A disk like the default one with other sequential rates, MB/s. Seeks, turns and patience
    /// take `percent` of its time, and the buffer keeps its proportion to what passes in a seek.
    #[must_use]
    pub fn slowed((read_mbs, write_mbs): (u32, u32), percent: u32) -> Self {
        let real = Self::default();
        let bytes_s = |mbs: u32| u64::from(mbs) * 1_000_000;
        let read = bytes_s(read_mbs);
        let time = |of_real: u64| of_real * u64::from(percent) / 100;
        let rate = |of_real: u64| of_real * u64::from(read_mbs) / (real.read_bytes_s / 1_000_000);
        Self {
            read_bytes_s: read,
            write_bytes_s: bytes_s(write_mbs),
            seek_average_us: time(real.seek_average_us),
            seek_shortest_us: time(real.seek_shortest_us),
            rpm: real.rpm * 100 / u64::from(percent.max(1)),
            buffer_bytes: time(rate(real.buffer_bytes)),
            interface_bytes_s: rate(real.interface_bytes_s),
            patience_us: time(real.patience_us),
            ..real
        }
    }

    /// Whether every number makes sense.
    ///
    /// # Errors
    /// Which one does not, in words.
    pub fn check(&self) -> Result<(), String> {
        let within = |what: &str, value: u64, min: u64, max: u64| {
            if (min..=max).contains(&value) {
                return Ok(());
            }
            Err(format!("{what} must be within {min} to {max}, not {value}"))
        };
        let rate = 1_000_000_000_000;
        within("the read rate", self.read_bytes_s, 100_000, rate)?;
        within("the write rate", self.write_bytes_s, 100_000, rate)?;
        within(
            "the interface's rate",
            self.interface_bytes_s,
            100_000,
            rate,
        )?;
        within("the average seek", self.seek_average_us, 0, 1_000_000)?;
        let shortest = self.seek_shortest_us;
        within("the shortest seek", shortest, 0, self.seek_average_us)?;
        within("turns a minute", self.rpm, 60, 1_000_000)?;
        within("the drive's buffer", self.buffer_bytes, 0, 1 << 40)?;
        within("patience", self.patience_us, 0, 60_000_000)?;
        within("retries", self.retries_us, 0, 60_000_000)?;
        let depth = u64::try_from(self.queue_depth).unwrap_or(u64::MAX);
        within("the queue depth", depth, 1, 1024)
    }

    /// Time of one turn.
    fn turn(&self) -> u64 {
        60 * SECOND / self.rpm
    }

    fn transfer(&self, kind: MediaKind, bytes: u64) -> u64 {
        let rate = match kind {
            MediaKind::Read => self.read_bytes_s,
            MediaKind::Write => self.write_bytes_s,
        };
        time_of(bytes, rate)
    }
}

/// Time in which `bytes` pass at `bytes_s`.
fn time_of(bytes: u64, bytes_s: u64) -> u64 {
    let time = u128::from(bytes) * u128::from(SECOND) / u128::from(bytes_s);
    u64::try_from(time).unwrap_or(u64::MAX)
}

/// To the host or from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MediaKind {
    /// From the disk.
    Read,
    /// To the disk.
    Write,
}

/// What the host asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Reading or writing.
    pub kind: MediaKind,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// When it reached the drive.
    pub arrived: u64,
}

impl Request {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// How a request was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceTime {
    /// When the drive turned to it.
    pub start: u64,
    /// Time of the seek; 0 when the head was there or the gap passed under it.
    pub seek: u64,
    /// Time until the place came by, or the gap had passed.
    pub rotation: u64,
    /// Time of the transfer.
    pub transfer: u64,
    /// When it was answered.
    pub end: u64,
    /// Whether it went on exactly where the last one ended.
    pub sequential: bool,
    /// Whether the head had to be positioned anew.
    pub positioned: bool,
}

/// The disk: where its head is and when it is free.
#[derive(Clone, Debug)]
pub struct Model {
    params: Params,
    capacity: u64,
    /// Bytes that pass the head in one turn.
    track: u64,
    /// The seek over the whole disk, above the shortest one.
    stroke: f64,
    head: u64,
    last: MediaKind,
    free_at: u64,
}

/// How the head gets to a place.
#[derive(Clone, Copy)]
struct Way {
    seek: u64,
    rotation: u64,
    positioned: bool,
}

impl Model {
    /// A disk of `capacity` bytes, its head at the start.
    #[must_use]
    pub fn new(params: Params, capacity: u64) -> Self {
        let track = time_of(params.read_bytes_s, SECOND * SECOND / params.turn().max(1)).max(1);
        // The square root of the distance between two random places is 8/15 on average.
        let above = as_f64((params.seek_average_us - params.seek_shortest_us) * 1_000);
        Self {
            params,
            capacity: capacity.max(1),
            track,
            stroke: above * 15.0 / 8.0,
            head: 0,
            last: MediaKind::Read,
            free_at: 0,
        }
    }

    /// The same disk with other times from now on: its head and its clock stay as they are.
    pub fn become_like(&mut self, params: Params) {
        *self = Self {
            head: self.head,
            last: self.last,
            free_at: self.free_at,
            ..Self::new(params, self.capacity)
        };
    }

    /// The disk's parameters.
    #[must_use]
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// When the request that was served last ended.
    #[must_use]
    pub fn free_at(&self) -> u64 {
        self.free_at
    }

    /// Whether one of `queue` goes on where the last request ended.
    #[must_use]
    pub fn follows(&self, queue: impl IntoIterator<Item = Request>) -> bool {
        queue.into_iter().any(|request| request.offset == self.head)
    }

    /// Which of `queue` (oldest first, not empty) is served next, if the choice is made at `now`.
    #[must_use]
    pub fn choose(&self, queue: impl IntoIterator<Item = Request>, now: u64) -> usize {
        let now = now.max(self.free_at);
        let window: Vec<Request> = queue.into_iter().take(self.params.queue_depth).collect();
        let patience = self.params.patience_us * 1_000;
        let impatient = window
            .first()
            .is_some_and(|oldest| now.saturating_sub(oldest.arrived) > patience);
        if impatient {
            return 0;
        }
        let begins_a_chain = |request: &Request| {
            let before = |other: &Request| other.end() == request.offset && other.length > 0;
            request.offset == self.head || !window.iter().any(before)
        };
        let reachable = window.iter().enumerate();
        let reachable = reachable.filter(|(_, request)| begins_a_chain(request));
        let cost = |request: &Request| {
            let way = self.way(request.offset, now);
            way.seek + way.rotation
        };
        // Of equals the oldest. There is always a beginning: a chain has no cycle.
        let nearest = reachable.min_by_key(|(_, request)| cost(request));
        nearest.map_or(0, |(index, _)| index)
    }

    /// Serves `request` after everything served before it.
    pub fn serve(&mut self, request: &Request) -> ServiceTime {
        let pause = request.arrived.saturating_sub(self.free_at);
        let transfer = self.params.transfer(request.kind, request.length);
        let start = self.free_at.max(request.arrived);
        let hidden = self.params.transfer(request.kind, self.params.buffer_bytes);
        let ahead = request.offset >= self.head && request.kind == self.last;
        let mut way = self.way(request.offset, start);
        let mut end = start + way.seek + way.rotation + transfer;
        if ahead && !way.positioned && pause <= hidden {
            // The drive did not pause: only what the host's pause left over is still to be done,
            // and no answer is sooner than the interface carries it.
            let media = self.free_at + way.rotation + transfer;
            let carried = start + time_of(request.length, self.params.interface_bytes_s);
            end = if pause == 0 {
                media
            } else {
                media.max(carried)
            };
            way.rotation = way.rotation.min(end - start);
        }
        let service = ServiceTime {
            start,
            seek: way.seek,
            rotation: way.rotation,
            transfer: end - start - way.seek - way.rotation,
            end,
            sequential: request.offset == self.head,
            positioned: way.positioned,
        };
        self.head = request.end();
        self.last = request.kind;
        self.free_at = end;
        service
    }

    /// The sooner of letting a forward gap pass and positioning anew, beginning at `now`.
    fn way(&self, offset: u64, now: u64) -> Way {
        let distance = offset.abs_diff(self.head);
        let lost = now > self.free_at
            && self.params.transfer(self.last, self.params.buffer_bytes) < now - self.free_at;
        if distance == 0 && !lost {
            return Way {
                seek: 0,
                rotation: 0,
                positioned: false,
            };
        }
        let seek = self.seek(distance);
        let rotation = self.rotation(offset, now + seek);
        if offset > self.head && !lost {
            let pass = time_of(distance, self.params.read_bytes_s);
            if pass <= seek + rotation {
                return Way {
                    seek: 0,
                    rotation: pass,
                    positioned: false,
                };
            }
        }
        Way {
            seek,
            rotation,
            positioned: true,
        }
    }

    /// Time of a seek over `distance` bytes.
    fn seek(&self, distance: u64) -> u64 {
        if distance == 0 {
            return 0;
        }
        let share = (as_f64(distance) / as_f64(self.capacity)).min(1.0);
        self.params.seek_shortest_us * 1_000 + as_time(self.stroke * share.sqrt())
    }

    /// Time from `now` until `offset` comes by.
    fn rotation(&self, offset: u64, now: u64) -> u64 {
        let turn = self.params.turn();
        let place = time_of(offset % self.track, self.params.read_bytes_s) % turn;
        (place + turn - now % turn) % turn
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a share of a distance, or a time far below 2^52 ns"
)]
fn as_f64(value: u64) -> f64 {
    value as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time of a few ms, positive; a cast of a float saturates"
)]
fn as_time(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
