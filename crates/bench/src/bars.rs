//! The bars of the project, and whether a run meets them.

use super::figures::Figure;
use super::limits::LIMIT;
use super::peers::{NULL, STOCK};
use super::record::BenchRecord;
use super::rows::Client;

/// What a value is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Against {
    /// The stock DataNode in the same row.
    Stock,
    /// The engine that drops its data, in the same row.
    Null,
    /// Nothing: the bar is a value.
    Value,
    /// Another row of the same peer.
    Own(&'static str),
    /// A limit of the hardware.
    Hardware(&'static str),
}

/// At least or at most so much.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Want {
    AtLeast(f64),
    AtMost(f64),
}

/// One bar.
#[derive(Clone, Copy, Debug)]
struct Bar {
    workload: &'static str,
    /// Who may do it; most bars hold for either client.
    clients: &'static [Client],
    figure: Figure,
    against: Against,
    want: Want,
    /// Only for this engine, or for each that keeps data.
    only: Option<&'static str>,
}

const EITHER: &[Client] = &[Client::Native, Client::Java];
const NATIVE: &[Client] = &[Client::Native];

const fn bar(
    workload: &'static str,
    clients: &'static [Client],
    figure: Figure,
    against: Against,
    want: Want,
) -> Bar {
    Bar {
        workload,
        clients,
        figure,
        against,
        want,
        only: None,
    }
}

const fn only(peer: &'static str, bar: Bar) -> Bar {
    Bar {
        only: Some(peer),
        ..bar
    }
}

use Against::{Hardware, Null, Own, Stock, Value};
use Figure::{Extents, MemoryPeak, NodeCpu, Ops, P99, Rate, SentRate, SettledRate};
use Want::{AtLeast, AtMost};

/// On a real disk.
const BARS: &[Bar] = &[
    bar("write-1", EITHER, Rate, Stock, AtLeast(2.5)),
    bar("write-1", EITHER, NodeCpu, Stock, AtMost(0.25)),
    bar("write-4", EITHER, Rate, Stock, AtLeast(2.0)),
    bar("write-4", EITHER, NodeCpu, Stock, AtMost(0.25)),
    bar("replicated-3", EITHER, Rate, Stock, AtLeast(2.0)),
    bar("cold-1", EITHER, Rate, Stock, AtLeast(1.4)),
    bar("cold-1", EITHER, NodeCpu, Stock, AtMost(0.6)),
    bar("cold-4", EITHER, Rate, Stock, AtLeast(1.4)),
    bar("cold-4", EITHER, NodeCpu, Stock, AtMost(0.6)),
    bar("warm-1", EITHER, Rate, Stock, AtLeast(1.0)),
    bar("warm-1", EITHER, NodeCpu, Stock, AtMost(0.8)),
    bar("pread-16", NATIVE, Ops, Stock, AtLeast(1.5)),
    bar("pread-16", NATIVE, P99, Stock, AtMost(0.5)),
    only("direct", bar("write-1", NATIVE, Rate, Null, AtLeast(0.8))),
    only("direct", bar("write-4", NATIVE, Rate, Null, AtLeast(0.8))),
    only(NULL, bar("write-1", NATIVE, NodeCpu, Value, AtMost(0.3))),
    only(NULL, bar("write-4", NATIVE, NodeCpu, Value, AtMost(0.3))),
];

/// On a modelled disk: what streams cost the head. Rates are those until the bytes are on the
/// device.
const MODELLED: &[Bar] = &[
    bar(
        "write-4",
        NATIVE,
        SettledRate,
        Own("write-1"),
        AtLeast(0.95),
    ),
    bar(
        "write-16",
        NATIVE,
        SettledRate,
        Own("write-1"),
        AtLeast(0.95),
    ),
    bar(
        "write-1",
        NATIVE,
        SettledRate,
        Hardware("device-write"),
        AtLeast(0.9),
    ),
    bar(
        "write-4",
        NATIVE,
        SettledRate,
        Hardware("device-write"),
        AtLeast(0.9),
    ),
    bar(
        "write-16",
        NATIVE,
        SettledRate,
        Hardware("device-write"),
        AtLeast(0.9),
    ),
    bar("cold-4", NATIVE, Rate, Own("cold-1"), AtLeast(0.95)),
    bar("cold-16", NATIVE, Rate, Own("cold-1"), AtLeast(0.95)),
    bar(
        "cold-1",
        NATIVE,
        Rate,
        Hardware("device-read"),
        AtLeast(0.9),
    ),
    bar(
        "cold-4",
        NATIVE,
        Rate,
        Hardware("device-read"),
        AtLeast(0.9),
    ),
    bar(
        "cold-16",
        NATIVE,
        Rate,
        Hardware("device-read"),
        AtLeast(0.9),
    ),
    bar("write-4", NATIVE, Extents, Value, AtMost(2.0)),
    bar(
        "read-back",
        NATIVE,
        Rate,
        Hardware("device-read"),
        AtLeast(0.95),
    ),
];

/// Resident memory that a node may have besides its buffers, MiB.
const MEMORY_BASE_MIB: u32 = 64;

/// A bar beside a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The workload.
    pub workload: String,
    /// The client.
    pub client: Client,
    /// Whose value.
    pub peer: String,
    /// What was wanted, in words.
    pub wanted: String,
    /// The value, a ratio unless the bar is a value.
    pub value: f64,
    /// Whether the bar is met.
    pub met: bool,
    /// What the hardware has to say about it, see [`nearest_limit`].
    pub beside: Option<String>,
}

/// Every bar that a run says something about, for each engine.
#[must_use]
pub fn verdicts(record: &BenchRecord) -> Vec<Verdict> {
    let bars = if record.modelled { MODELLED } else { BARS };
    let mut all = Vec::new();
    for bar in bars {
        for &client in bar.clients {
            for peer in engines(record, bar.only) {
                all.extend(verdict(record, bar, client, peer));
            }
        }
    }
    all.extend(engines(record, None).filter_map(|peer| memory(record, peer)));
    all
}

/// Hayloft's engines of a run: the one named, or all that keep data.
fn engines<'a>(
    record: &'a BenchRecord,
    only: Option<&'static str>,
) -> impl Iterator<Item = &'a str> + use<'a> {
    let peers = record.peers.iter().map(String::as_str);
    peers.filter(move |&peer| match only {
        Some(only) => peer == only,
        None => !peer.starts_with(STOCK) && peer != NULL,
    })
}

fn verdict(record: &BenchRecord, bar: &Bar, client: Client, peer: &str) -> Option<Verdict> {
    let median = |workload: &str, client, peer: &str| {
        let spread = record.spread(workload, client, peer, bar.figure)?;
        Some(spread.median)
    };
    let own = median(bar.workload, client, peer)?;
    let (base, of) = match bar.against {
        Value => (1.0, String::new()),
        Stock => (median(bar.workload, client, STOCK)?, " of stock's".into()),
        Null => (median(bar.workload, client, NULL)?, " of null's".into()),
        Own(row) => (median(row, client, peer)?, format!(" of {row}'s")),
        Hardware(row) => {
            let limit = record.spread(row, Client::None, LIMIT, Rate)?;
            (limit.median, format!(" of {row}"))
        }
    };
    let beside = match bar.against {
        Null => nearest_limit(record, (bar.workload, client), own, base),
        Stock if bar.figure == Rate => device_limit(record, (bar.workload, client), own, base),
        Stock if bar.figure == NodeCpu => bare_limit(record, (bar.workload, client), own, base),
        _ => None,
    };
    let value = own / base;
    let (met, wanted) = match bar.want {
        AtLeast(least) => (value >= least, format!("at least {least}")),
        AtMost(most) => (value <= most, format!("at most {most}")),
    };
    Some(Verdict {
        workload: bar.workload.to_owned(),
        client,
        peer: peer.to_owned(),
        wanted: format!("{}: {wanted}{of}", bar.figure.heading()),
        value,
        met: met && value.is_finite(),
        beside,
    })
}

/// What was measured beside the row without any node, where it was.
fn without_node(record: &BenchRecord, row: (&str, Client), figure: Figure) -> Option<f64> {
    let spread = record.spread(row.0, row.1, LIMIT, figure)?;
    Some(spread.median)
}

/// What the raw device gives beside the row, where that was measured.
fn device(record: &BenchRecord, row: (&str, Client)) -> Option<f64> {
    without_node(record, row, Rate)
}

/// How much of the stock `DataNode`'s processor time goes into reading and sending alone, and how
/// much more this takes.
fn bare_limit(record: &BenchRecord, row: (&str, Client), own: f64, stock: f64) -> Option<String> {
    let bare = without_node(record, row, NodeCpu)?;
    Some(format!(
        "a program that only reads and sends takes {:.2} of stock's; this is {:.2} of that",
        bare / stock,
        own / bare
    ))
}

/// How far the device would let any node be ahead of the stock DataNode, and how much of the device
/// this is.
fn device_limit(record: &BenchRecord, row: (&str, Client), own: f64, stock: f64) -> Option<String> {
    let device = device(record, row)?;
    let sent = without_node(record, row, SentRate).map(|sent| {
        let (of_stock, of_bare) = (sent / stock, own / sent);
        format!(
            "; read and sent by a program that does nothing else, {of_stock:.2}, of which \
            this is {of_bare:.2}"
        )
    });
    Some(format!(
        "the raw device beside it gives {:.2} of stock's; this is {:.2} of the raw device{}",
        device / stock,
        own / device,
        sent.unwrap_or_default()
    ))
}

/// What an engine that keeps what it writes can reach beside null's rate, and how much of that it
/// does: the slower one of null and the raw device is its limit, but for what the page cache holds
/// when the client is done. `None` when the raw device was not measured.
fn nearest_limit(record: &BenchRecord, row: (&str, Client), own: f64, null: f64) -> Option<String> {
    let device = device(record, row)?;
    let nearest = if device < null { "raw device" } else { "null" };
    Some(format!(
        "the raw device gives {:.2} of null's; this is {:.2} of the nearest limit ({nearest})",
        device / null,
        own / device.min(null)
    ))
}

/// The bar on memory: the largest value of all rows.
fn memory(record: &BenchRecord, peer: &str) -> Option<Verdict> {
    let of_peer = record.samples.iter().filter(|sample| sample.peer == peer);
    let peaks = of_peer.filter_map(|sample| sample.figures.get(&MemoryPeak));
    let value = peaks.copied().reduce(f64::max)?;
    let budget = u32::try_from(record.memory_limit_mib).unwrap_or(u32::MAX);
    let limit = f64::from(MEMORY_BASE_MIB) + f64::from(budget);
    Some(Verdict {
        workload: "every row".into(),
        client: Client::None,
        peer: peer.to_owned(),
        wanted: format!(
            "{}: at most {MEMORY_BASE_MIB} + {budget} (hayloft.memory.limit)",
            MemoryPeak.heading()
        ),
        value,
        met: value <= limit,
        beside: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::record;
    use super::*;

    fn verdict_of<'a>(all: &'a [Verdict], workload: &str, peer: &str, wanted: &str) -> &'a Verdict {
        let fits =
            |v: &&Verdict| v.workload == workload && v.peer == peer && v.wanted.contains(wanted);
        all.iter()
            .find(fits)
            .unwrap_or_else(|| panic!("{workload} {peer} {wanted}: {all:#?}"))
    }

    #[test]
    fn ratios_are_to_the_peer_that_the_bar_names() {
        let native = Client::Native;
        let record = record(&[
            ("write-1", native, "stock", &[(Rate, 400.0), (NodeCpu, 2.0)]),
            (
                "write-1",
                native,
                "direct",
                &[(Rate, 1000.0), (NodeCpu, 0.6), (MemoryPeak, 400.0)],
            ),
            (
                "write-1",
                native,
                "null",
                &[(Rate, 2000.0), (NodeCpu, 0.25)],
            ),
        ]);
        let all = verdicts(&record);
        let rate = verdict_of(&all, "write-1", "direct", "stock's");
        assert!(rate.met && (rate.value - 2.5).abs() < 1e-9, "{rate:?}");
        assert!(
            !verdict_of(&all, "write-1", "direct", "CPU").met,
            "0.3 is more than a quarter"
        );
        assert!(!verdict_of(&all, "write-1", "direct", "null's").met);
        assert!(verdict_of(&all, "write-1", "null", "CPU").met);
        assert!(!verdict_of(&all, "every row", "direct", "64 + 256").met);
        assert!(
            !all.iter().any(|v| v.workload == "write-4"),
            "what was not measured has no verdict"
        );
    }

    #[test]
    fn what_the_device_leaves_of_nulls_rate_is_said_beside_the_bar() {
        let native = Client::Native;
        let of = |device: f64| {
            let record = record(&[
                ("write-1", native, LIMIT, &[(Rate, device)]),
                ("write-1", native, "direct", &[(Rate, 900.0)]),
                ("write-1", native, "null", &[(Rate, 2000.0)]),
            ]);
            let all = verdicts(&record);
            let verdict = verdict_of(&all, "write-1", "direct", "null's").clone();
            assert!(!verdict.met, "the bar itself stays: {verdict:?}");
            verdict.beside.expect("said")
        };
        let slow = of(1000.0);
        assert!(slow.contains("gives 0.50 of null's"), "{slow}");
        assert!(
            slow.contains("0.90 of the nearest limit (raw device)"),
            "{slow}"
        );
        let fast = of(4000.0);
        assert!(
            fast.contains("gives 2.00") && fast.contains("0.45 of the nearest limit (null)"),
            "{fast}"
        );
    }

    #[test]
    fn what_the_device_leaves_of_stocks_rate_is_said_beside_the_bar() {
        let native = Client::Native;
        let record = record(&[
            ("cold-4", native, "stock", &[(Rate, 1000.0), (NodeCpu, 0.4)]),
            (
                "cold-4",
                native,
                "direct",
                &[(Rate, 1200.0), (NodeCpu, 0.3)],
            ),
            (
                "cold-4",
                native,
                LIMIT,
                &[(Rate, 1250.0), (SentRate, 1600.0), (NodeCpu, 0.26)],
            ),
        ]);
        let all = verdicts(&record);
        let cpu = verdict_of(&all, "cold-4", "direct", "CPU");
        let beside = cpu.beside.as_deref().expect("said");
        assert!(
            !cpu.met && beside.contains("takes 0.65 of stock's; this is 1.15 of that"),
            "{beside}"
        );
        let verdict = verdict_of(&all, "cold-4", "direct", "stock's");
        assert!(!verdict.met, "the bar itself stays: {verdict:?}");
        let beside = verdict.beside.as_deref().expect("said");
        assert!(
            beside.contains("gives 1.25 of stock's")
                && beside.contains("0.96 of the raw device")
                && beside.contains("1.60, of which this is 0.75"),
            "{beside}"
        );
    }

    #[test]
    fn a_modelled_disk_has_bars_of_its_own() {
        let native = Client::Native;
        let mut record = record(&[
            ("device-write", Client::None, LIMIT, &[(Rate, 95.0)]),
            ("write-1", native, "direct", &[(SettledRate, 90.0)]),
            ("write-16", native, "direct", &[(SettledRate, 80.0)]),
        ]);
        record.modelled = true;
        let all = verdicts(&record);
        assert!(verdict_of(&all, "write-1", "direct", "device-write").met);
        assert!(!verdict_of(&all, "write-16", "direct", "write-1's").met);
    }
}
