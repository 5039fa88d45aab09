//! Fewer and larger awakenings for a stream that runs fast.
//!
//! A sender on a fast link sends a packet, this node wakes up, takes it, acknowledges it, wakes the
//! sender up by that, sleeps, and so on: as many switches on both sides as there are packets. So
//! while a stream is fast the kernel is asked to wake it up only when a few packets are there
//! (`SO_RCVLOWAT`), or after a moment. Interrupts of network cards are moderated the same way, for
//! the same reason.
//!
//! A stream that is slower than [`BATCH_MIN`] in an [`INTERVAL`], such as most that wait for each
//! acknowledgement, is not delayed at all. One whose sender stops before as much is there (because
//! it waits for acknowledgements) is delayed [`MISSES_MAX`] times, and from then on once in
//! [`FORGIVEN_AFTER`] batches that came in full.
//!
//! A fast stream also gets a [large window](WINDOW_BYTES) early. What a small window keeps back is
//! sent later, a little each time that this node has made room, which costs both sides more (on one
//! machine even in the receiver's name).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::xceiver::net::conn::Conn;

/// Bytes to wait for, at most: four packets of the usual size, far less than what the usual client
/// has under way.
const BATCH_MAX: u32 = 256 << 10;

/// Bytes that are worth waiting for: two packets.
const BATCH_MIN: u32 = 128 << 10;

/// How often a stream shall be looked at.
const INTERVAL: Duration = Duration::from_millis(1);

/// How long what is there may wait for more.
const NAP: Duration = Duration::from_millis(1);

/// Over how much time the rate is looked at, at least.
const RATE_OVER: Duration = Duration::from_millis(2);

/// Waits in vain after which a stream is left alone.
const MISSES_MAX: u32 = 4;

/// Batches after which a wait in vain is forgiven: at 16 MiB, of which the wait is a small part at
/// any rate.
const FORGIVEN_AFTER: u32 = 64;

/// Blocks usually end at a multiple of this. Their last packet is followed by nothing that could be
/// waited for.
const BLOCK_GRID: u64 = 16 << 20;

/// What the sender of a fast stream may send ahead: more than the usual client ever does (80
/// packets of 64 KiB). The kernel gets there by itself only after seconds of full speed, and then
/// goes beyond it.
const WINDOW_BYTES: u32 = 8 << 20;

/// Bytes in [`RATE_OVER`] that make a stream fast enough for the window: 100 MB/s.
const WIDE_RATE: u64 = 200_000;

/// When to wake up the task that receives a stream.
#[derive(Debug)]
pub struct Moderation {
    since: Instant,
    /// Received since then.
    bytes: u64,
    /// Bytes to wait for; 1 while the stream is slow.
    batch: u32,
    /// The last wait was in vain, and nothing was received since.
    missed: bool,
    /// Waits in vain that are not forgiven, times [`FORGIVEN_AFTER`].
    misses: u32,
    /// Streams that may get a large window.
    wide: Arc<Semaphore>,
    window: Option<OwnedSemaphorePermit>,
    alarm: Option<Pin<Box<Sleep>>>,
    /// The alarm is set for the wait that is going on.
    waiting: bool,
}

impl Moderation {
    /// For a stream of which nothing is known; as many get a large window as `wide` has permits.
    #[must_use]
    pub fn new(wide: &Arc<Semaphore>) -> Self {
        Self {
            since: Instant::now(),
            bytes: 0,
            batch: 1,
            missed: false,
            misses: 0,
            wide: Arc::clone(wide),
            window: None,
            alarm: None,
            waiting: false,
        }
    }

    /// Bytes were received.
    pub fn received(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.missed = false;
    }

    /// Waits until it is worth reading from the socket, of which everything that was there was
    /// read; `offset` is that of the next packet in its block.
    ///
    /// # Errors
    /// The connection broke.
    pub fn poll_readable(
        &mut self,
        conn: &Conn,
        offset: u64,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.waiting {
            self.look(conn, Instant::now());
        }
        if !self.may_wait(offset) {
            self.waiting = false;
            return conn.poll_readable(cx);
        }
        if let Poll::Ready(ready) = conn.poll_readable_from(self.batch, cx) {
            self.waiting = false;
            self.misses = self.misses.saturating_sub(1);
            return Poll::Ready(ready);
        }
        ready!(self.poll_alarm(cx));
        self.missed = true;
        self.misses += FORGIVEN_AFTER;
        self.waiting = false;
        // If anything is there, asking for a byte makes the kernel tell.
        conn.poll_readable(cx)
    }

    fn may_wait(&self, offset: u64) -> bool {
        let left = BLOCK_GRID - offset % BLOCK_GRID;
        let ends_soon = left < u64::from(2 * BATCH_MAX);
        let tolerated = self.misses <= (MISSES_MAX - 1) * FORGIVEN_AFTER;
        self.batch > 1 && !self.missed && !ends_soon && tolerated
    }

    /// Measures the rate, every now and then.
    fn look(&mut self, conn: &Conn, now: Instant) {
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed < RATE_OVER {
            return;
        }
        let in_time = |time: Duration| {
            let bytes = u128::from(self.bytes) * time.as_nanos() / elapsed.as_nanos();
            u64::try_from(bytes).unwrap_or(u64::MAX)
        };
        let batch = u32::try_from(in_time(INTERVAL)).unwrap_or(u32::MAX);
        let fast = in_time(RATE_OVER) >= WIDE_RATE;
        self.batch = if batch < BATCH_MIN {
            1
        } else {
            batch.min(BATCH_MAX)
        };
        self.since = now;
        self.bytes = 0;
        if fast && self.window.is_none() {
            self.window = Arc::clone(&self.wide).try_acquire_owned().ok();
            if self.window.is_some() {
                conn.widen(WINDOW_BYTES);
            }
        }
    }

    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let alarm = self
            .alarm
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + NAP)));
        if !self.waiting {
            self.waiting = true;
            alarm.as_mut().reset(Instant::now() + NAP);
        }
        alarm.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::xceiver::settings::Settings;

    const SIXTEEN: usize = 16;

    async fn pair() -> (Conn, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (peer, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let conn = Conn::new(accepted.expect("accepted").0, &Settings::default());
        (conn.expect("open"), peer.expect("connected"))
    }

    fn moderation() -> Moderation {
        Moderation::new(&Arc::new(Semaphore::new(1)))
    }

    /// Of a stream that was measured to have so many bytes in two intervals.
    fn at_rate(bytes: u32) -> Moderation {
        let mut moderation = moderation();
        moderation.batch = (bytes / 2).min(BATCH_MAX);
        if moderation.batch < BATCH_MIN {
            moderation.batch = 1;
        }
        // Not measured again during the test.
        moderation.since = Instant::now() + Duration::from_secs(3600);
        moderation
    }

    async fn wait(moderation: &mut Moderation, conn: &Conn, offset: u64) {
        poll_fn(|cx| moderation.poll_readable(conn, offset, cx))
            .await
            .expect("no error");
    }

    fn drain(moderation: &mut Moderation, conn: &Conn) -> usize {
        let mut total = 0;
        let mut bytes = vec![0; 1 << 20];
        while let Some(n) = conn.read_ready(&mut bytes).expect("open") {
            total += n;
        }
        moderation.received(total);
        total
    }

    #[tokio::test]
    async fn the_rate_decides_about_the_batch_and_the_window() {
        let (conn, _peer) = pair().await;
        let buffer = |conn: &Conn| {
            rustix::net::sockopt::socket_recv_buffer_size(conn.socket()).expect("a socket")
        };
        let before = buffer(&conn);
        let mut moderation = moderation();
        let began = Instant::now();
        moderation.since = began;
        moderation.received(100 << 10);
        moderation.look(&conn, began + RATE_OVER / 2);
        assert_eq!(moderation.bytes, 100 << 10, "too early to tell");
        moderation.look(&conn, began + RATE_OVER);
        assert_eq!((moderation.batch, moderation.window.is_some()), (1, false));
        assert_eq!(buffer(&conn), before);
        moderation.received(300 << 10);
        moderation.look(&conn, began + 2 * RATE_OVER);
        assert_eq!(moderation.batch, 150 << 10);
        assert!(moderation.window.is_some());
        assert!(buffer(&conn) > before, "{} was {before}", buffer(&conn));
        moderation.received(8 << 20);
        moderation.look(&conn, began + 3 * RATE_OVER);
        assert_eq!(moderation.batch, BATCH_MAX);
        moderation.look(&conn, began + 4 * RATE_OVER);
        assert_eq!(moderation.batch, 1, "it stopped");
    }

    #[tokio::test]
    async fn only_so_many_streams_get_a_window() {
        let wide = Arc::new(Semaphore::new(1));
        let (conn, _peer) = pair().await;
        let mut streams = [Moderation::new(&wide), Moderation::new(&wide)];
        for moderation in &mut streams {
            moderation.received(8 << 20);
            moderation.look(&conn, moderation.since + RATE_OVER);
        }
        assert!(streams[0].window.is_some() && streams[1].window.is_none());
        drop(streams);
        assert_eq!(wide.available_permits(), 1);
    }

    #[tokio::test]
    async fn a_fast_stream_wakes_up_for_a_batch() {
        let (conn, mut peer) = pair().await;
        conn.widen(WINDOW_BYTES);
        let mut moderation = at_rate(2 * BATCH_MIN);
        assert_eq!(drain(&mut moderation, &conn), 0);
        let feed = tokio::spawn(async move {
            for _ in 0..SIXTEEN {
                peer.write_all(&vec![7; BATCH_MIN as usize / SIXTEEN])
                    .await
                    .expect("taken");
                tokio::task::yield_now().await;
            }
            peer
        });
        wait(&mut moderation, &conn, 0).await;
        if !moderation.missed {
            assert!(drain(&mut moderation, &conn) >= BATCH_MIN as usize);
        }
        let _peer = feed.await.expect("no panic");
    }

    #[tokio::test]
    async fn a_sender_that_waits_for_each_packet_is_delayed_a_few_times() {
        let (conn, mut peer) = pair().await;
        let mut moderation = at_rate(u32::MAX);
        let mut naps = 0;
        for _ in 0..50 {
            peer.write_all(&[7; 1000]).await.expect("taken");
            wait(&mut moderation, &conn, 0).await;
            naps += u32::from(moderation.missed);
            while drain(&mut moderation, &conn) == 0 {
                conn_readable(&conn).await;
            }
        }
        assert_eq!(naps, MISSES_MAX);
    }

    async fn conn_readable(conn: &Conn) {
        poll_fn(|cx| conn.poll_readable(cx)).await.expect("open");
    }

    #[tokio::test]
    async fn full_batches_make_up_for_a_wait_in_vain() {
        let mut moderation = at_rate(u32::MAX);
        moderation.misses = MISSES_MAX * FORGIVEN_AFTER;
        assert!(!moderation.may_wait(0));
        moderation.misses -= FORGIVEN_AFTER;
        assert!(moderation.may_wait(0));
    }

    #[tokio::test]
    async fn nothing_is_waited_for_where_blocks_end() {
        let moderation = at_rate(u32::MAX);
        let end = 128 << 20;
        assert!(moderation.may_wait(end - u64::from(2 * BATCH_MAX)));
        assert!(!moderation.may_wait(end - u64::from(2 * BATCH_MAX) + 1));
        assert!(!moderation.may_wait(end - 1));
        assert!(moderation.may_wait(end));
        assert!(!at_rate(BATCH_MIN).may_wait(0), "it is slow");
    }
}
