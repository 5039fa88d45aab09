//! Pushes metrics to the sinks of `hadoop-metrics2.properties`, as Apache's node does.
//!
//! - `lines`: what a sink gets of the records, in its form
//! - `outlet`: the connection or file of a sink
//! - `losses`: what a sink lost, and when it is tried again
//!
//! Each sink is a task of its own. It takes a snapshot when one is due and the sink can have it:
//! none waits, and a sink that is slow or away loses those in between.

mod lines;
mod losses;
mod outlet;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hayloft_conf::MetricsSink;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::http::Record;
use losses::{Change, Losses, PAUSE_MAX};
use outlet::Outlet;

/// A sink that has not taken a snapshot after this time is told of. Only a file comes so far: what
/// is sent over a network is given up before.
const HANGS: Duration = Duration::from_secs(30);

/// Pushes what `records` gives to a sink until the node stops. `node` is the name of a virtual one.
pub(crate) async fn push(
    records: Arc<dyn Fn() -> Vec<Record> + Send + Sync>,
    node: Option<String>,
    sink: MetricsSink,
    stop: CancellationToken,
) {
    info!("metrics go to the sink {sink}");
    let pushing = async {
        let (mut outlet, mut losses) = (Outlet::new(sink.target.clone()), Losses::default());
        let (period, sink) = (sink.period, Arc::new(sink));
        let mut ticks = interval_at(Instant::now() + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let due = ticks.tick().await;
            if !losses.is_to_be_tried(due, period) {
                continue;
            }
            let (records, node, wants) = (Arc::clone(&records), node.clone(), Arc::clone(&sink));
            // There are many: they would hold up the connections of this thread.
            let taken = tokio::task::spawn_blocking(move || {
                let at = SystemTime::now().duration_since(UNIX_EPOCH);
                lines::of(&wants, records(), node.as_deref(), at.unwrap_or_default())
            });
            let outcome = match taken.await {
                Ok(lines) => {
                    let tell = || {
                        warn!(
                            "the sink {sink} hangs and loses metrics, and a thread waits for it: \
                             see whether its file system answers"
                        );
                    };
                    telling_when_late(outlet.send(lines), tell).await
                }
                Err(error) => Err(io::Error::other(error)),
            };
            match losses.saw(outcome, outlet.take_lost()) {
                Some(Change::Begin(why)) => warn!(
                    "the sink {sink} loses metrics: {why}: it is tried again, at the latest after \
                     {} s",
                    PAUSE_MAX.as_secs()
                ),
                Some(Change::End(lost)) => {
                    info!("the sink {sink} gets metrics again, it lost {lost} snapshots");
                }
                None => {}
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = pushing => {}
    }
}

/// Waits for it to its end, and tells once when it takes longer than [`HANGS`].
async fn telling_when_late<T>(work: impl Future<Output = T>, tell: impl FnOnce()) -> T {
    let mut work = std::pin::pin!(work);
    match timeout(HANGS, &mut work).await {
        Ok(done) => done,
        Err(_) => {
            tell();
            work.await
        }
    }
}
