//! What was done and what it took, for `/prom`.

use super::WebHost;
use super::prom_text::Exposition;
use crate::activity::{BOUNDS_NANOS, Count, OpKind, Part, Timed};

#[expect(clippy::cast_precision_loss, reason = "nanoseconds as seconds")]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Adds counts, times, latencies and what the RPC port did.
pub fn add(text: &mut Exposition, host: &dyn WebHost) {
    events(text, host);
    latencies(text, host);
    rpc(text, host);
}

/// Under the names of Apache's bean `DataNodeActivity`.
fn events(text: &mut Exposition, host: &dyn WebHost) {
    let (counted, store) = (&host.stats().activity, host.store());
    text.family(
        "events_total",
        "counter",
        "What happened, by the attribute of DataNodeActivity.",
    );
    let mut sample = |name, value| text.sample("events_total", &[("event", name)], value);
    for &what in Count::ALL {
        sample(what.name(), counted.count(what));
    }
    let scans = store.scan_reports();
    sample("BlocksRemoved", store.removed_count());
    sample("BlocksVerified", scans.iter().map(|scan| scan.blocks).sum());
    let bad = scans.iter().map(|scan| scan.errors).sum();
    sample("BlockVerificationFailures", bad);
    // A rate in bytes has no seconds.
    let timed = || {
        let all = Timed::ALL.iter();
        all.filter(|what| **what != Timed::ReadTransferRate)
    };
    text.family(
        "timed_total",
        "counter",
        "Timed operations, by the attribute of DataNodeActivity.",
    );
    for what in timed() {
        let (count, _) = counted.total(*what);
        text.sample("timed_total", &[("operation", what.name())], count);
    }
    text.family("timed_seconds_total", "counter", "What these took.");
    for what in timed() {
        let (_, nanos) = counted.total(*what);
        let labels = [("operation", what.name())];
        text.sample("timed_seconds_total", &labels, seconds(nanos));
    }
}

fn latencies(text: &mut Exposition, host: &dyn WebHost) {
    text.family(
        "operation_seconds",
        "histogram",
        "Latency of operations by the part that took it.",
    );
    for kind in OpKind::ALL {
        for part in Part::ALL {
            let histogram = host.stats().activity.latencies.of(kind, part);
            let (up_to, nanos) = histogram.cumulative();
            let labels = [("operation", kind.name()), ("part", part.name())];
            let bounds = BOUNDS_NANOS.iter().map(|bound| seconds(*bound).to_string());
            let bounds = bounds.chain(["+Inf".to_owned()]);
            for (bound, count) in bounds.zip(up_to) {
                let labels = [labels[0], labels[1], ("le", &*bound)];
                text.sample("operation_seconds_bucket", &labels, count);
            }
            text.sample("operation_seconds_sum", &labels, seconds(nanos));
            let all = up_to.last().copied().unwrap_or(0);
            text.sample("operation_seconds_count", &labels, all);
        }
    }
}

fn rpc(text: &mut Exposition, host: &dyn WebHost) {
    let stats = host.rpc_stats();
    for (name, kind, help, value) in [
        (
            "rpc_open_connections",
            "gauge",
            "Connections of the RPC port.",
            &stats.open_connections,
        ),
        (
            "rpc_received_bytes_total",
            "counter",
            "Bytes that came in on the RPC port.",
            &stats.received_bytes,
        ),
        (
            "rpc_sent_bytes_total",
            "counter",
            "Bytes of answers of the RPC port.",
            &stats.sent_bytes,
        ),
    ] {
        text.one((name, kind), help, value.get());
    }
    let (_, queued) = stats.queue.total();
    text.one(
        ("rpc_queue_seconds_total", "counter"),
        "Wait of calls for a handler.",
        seconds(queued),
    );
    let methods = stats.methods();
    text.family("rpc_calls_total", "counter", "Calls, by method.");
    for (method, times) in &methods {
        text.sample("rpc_calls_total", &[("method", method)], times.calls);
    }
    text.family(
        "rpc_processing_seconds_total",
        "counter",
        "What carrying them out took.",
    );
    for (method, times) in &methods {
        let labels = [("method", &**method)];
        let took = seconds(times.processing_nanos);
        text.sample("rpc_processing_seconds_total", &labels, took);
    }
}
