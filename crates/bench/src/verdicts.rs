//! Whether a run reaches the targets.

use super::fair::stock::is_stock;
use super::figures::Figure::{self, MemoryPeak, NodeCpu, Rate, SentCpu, SentRate};
use super::limits::LIMIT;
use super::peers::{NULL, STOCK};
use super::record::BenchRecord;
use super::rows::Client;
use super::targets::{Against, BenchTarget, Want};

/// Resident memory that a node may have besides its buffers, MiB.
const MEMORY_BASE_MIB: u32 = 64;

/// A target beside a run.
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
    /// The value, a ratio unless the target is a value.
    pub value: f64,
    /// Whether the target is reached; `None` when the row moved too little to tell.
    pub met: Option<bool>,
    /// What the hardware has to say about it, see [`nearest_limit`].
    pub beside: Option<String>,
}

/// Every target that a run says something about, for each engine.
#[must_use]
pub fn verdicts(record: &BenchRecord, targets: &[BenchTarget]) -> Vec<Verdict> {
    let mut all = Vec::new();
    for target in targets.iter().filter(|t| t.modelled == record.modelled) {
        for &client in &target.clients {
            for peer in engines(record, target.only.as_deref()) {
                all.extend(verdict(record, target, client, peer));
            }
        }
    }
    all.extend(engines(record, None).filter_map(|peer| memory(record, peer)));
    all
}

/// Hayloft's engines of a run: the one named, or all that keep data.
fn engines<'a>(
    record: &'a BenchRecord,
    only: Option<&'a str>,
) -> impl Iterator<Item = &'a str> + use<'a> {
    let peers = record.peers.iter().map(String::as_str);
    peers.filter(move |&peer| match only {
        Some(only) => peer == only,
        None => !is_stock(peer) && peer != NULL && !peer.starts_with("plugin-"),
    })
}

fn verdict(
    record: &BenchRecord,
    target: &BenchTarget,
    client: Client,
    peer: &str,
) -> Option<Verdict> {
    let median = |workload: &str, client, peer: &str, figure| {
        let spread = record.spread(workload, client, peer, figure)?;
        Some(spread.median)
    };
    let row = (target.row.as_str(), client);
    let own = median(row.0, client, peer, target.figure)?;
    let (base, of) = match &target.against {
        Against::Value => (1.0, String::new()),
        Against::Peer(other) => {
            let base = median(row.0, client, other, target.figure)?;
            (base, format!(" of {other}'s"))
        }
        Against::Row(other) | Against::Above(other) => {
            let base = median(other, client, peer, target.figure)?;
            let above = matches!(target.against, Against::Above(_));
            let how = if above { "above" } else { "of" };
            (base, format!(" {how} {other}'s"))
        }
        Against::Limit(limit) => {
            let base = median(limit, Client::None, LIMIT, Rate)?;
            (base, format!(" of {limit}"))
        }
    };
    let beside = match (&target.against, target.figure) {
        (Against::Peer(other), Rate) if other == NULL => nearest_limit(record, row, own, base),
        (Against::Peer(other), Rate) if other == STOCK => device_limit(record, row, own, base),
        (Against::Peer(other), NodeCpu) if other == STOCK => bare_limit(record, row, own, base),
        _ => None,
    };
    let value = match target.against {
        Against::Above(_) => own - base,
        _ => own / base,
    };
    let (met, wanted) = match target.want {
        Want::AtLeast(least) => (value >= least, format!("at least {least}")),
        Want::AtMost(most) => (value <= most, format!("at most {most}")),
    };
    let tells = !target.figure.is_cpu_per_gib() || record.moved_enough(row.0, client, peer);
    Some(Verdict {
        workload: target.row.clone(),
        client,
        peer: peer.to_owned(),
        wanted: format!("{}: {wanted}{of}", target.figure.heading()),
        value,
        met: tells.then_some(met && value.is_finite()),
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
    // Earlier versions recorded it as a node's.
    let bare = without_node(record, row, SentCpu).or_else(|| without_node(record, row, NodeCpu))?;
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

/// The target of memory: the largest value of all rows.
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
        met: Some(value <= limit),
        beside: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::record;
    use super::*;
    use crate::figures::Figure::SettledRate;
    use crate::targets::BenchTargets;

    fn verdicts(record: &BenchRecord) -> Vec<Verdict> {
        let own = BenchTargets::load().expect("the targets can be read");
        super::verdicts(record, &own.targets)
    }

    fn verdict_of<'a>(all: &'a [Verdict], workload: &str, peer: &str, wanted: &str) -> &'a Verdict {
        let fits =
            |v: &&Verdict| v.workload == workload && v.peer == peer && v.wanted.contains(wanted);
        all.iter()
            .find(fits)
            .unwrap_or_else(|| panic!("{workload} {peer} {wanted}: {all:#?}"))
    }

    const JAVA: Client = Client::Java;
    const LOAD: Client = Client::Load;

    #[test]
    fn ratios_are_to_the_peer_that_the_target_names() {
        let record = record(&[
            ("write-1", JAVA, "stock", &[(Rate, 400.0), (NodeCpu, 2.0)]),
            ("write-1", JAVA, "direct", &[(Rate, 1000.0), (NodeCpu, 0.6)]),
            (
                "write-1",
                LOAD,
                "direct",
                &[(Rate, 1000.0), (MemoryPeak, 400.0)],
            ),
            ("write-1", LOAD, "null", &[(Rate, 2000.0), (NodeCpu, 0.25)]),
        ]);
        let all = verdicts(&record);
        let rate = verdict_of(&all, "write-1", "direct", "stock's");
        let reached = rate.met == Some(true) && (rate.value - 2.5).abs() < 1e-9;
        assert!(reached, "{rate:?}");
        let met = |row: &str, peer: &str, wanted: &str| verdict_of(&all, row, peer, wanted).met;
        let too_much = met("write-1", "direct", "CPU");
        assert_eq!(too_much, Some(false), "0.3 is more than a quarter");
        assert_eq!(met("write-1", "direct", "null's"), Some(false));
        assert_eq!(met("write-1", "null", "CPU"), Some(true));
        assert_eq!(met("every row", "direct", "64 + 256"), Some(false));
        let other = all.iter().any(|v| v.workload == "write-4");
        assert!(!other, "what was not measured has no verdict");
    }

    #[test]
    fn what_encryption_costs_is_what_its_row_takes_more() {
        let record = record(&[
            ("write-1", JAVA, "direct", &[(NodeCpu, 0.35)]),
            ("write-1-aes", JAVA, "stock", &[(NodeCpu, 2.0)]),
            ("write-1-aes", JAVA, "direct", &[(NodeCpu, 0.5)]),
        ]);
        let all = verdicts(&record);
        let more = verdict_of(&all, "write-1-aes", "direct", "above write-1's");
        let reached = more.met == Some(true) && (more.value - 0.15).abs() < 1e-9;
        assert!(reached, "{more:?}");
        let half = verdict_of(&all, "write-1-aes", "direct", "stock's");
        assert_eq!(half.met, Some(true), "{half:?}");
    }

    #[test]
    fn processor_time_of_little_data_is_not_judged() {
        let mut record = record(&[
            ("write-1", JAVA, "stock", &[(NodeCpu, 2.0)]),
            ("write-1", JAVA, "direct", &[(NodeCpu, 0.2)]),
        ]);
        record.mib = 1024;
        let all = verdicts(&record);
        assert_eq!(verdict_of(&all, "write-1", "direct", "CPU").met, None);
    }

    #[test]
    fn what_the_device_leaves_of_nulls_rate_is_said_beside_the_target() {
        let of = |device: f64| {
            let record = record(&[
                ("write-1", LOAD, LIMIT, &[(Rate, device)]),
                ("write-1", LOAD, "direct", &[(Rate, 900.0)]),
                ("write-1", LOAD, "null", &[(Rate, 2000.0)]),
            ]);
            let all = verdicts(&record);
            let verdict = verdict_of(&all, "write-1", "direct", "null's").clone();
            assert_eq!(verdict.met, Some(false), "the target itself stays");
            verdict.beside.expect("said")
        };
        let slow = of(1000.0);
        let (gives, nearest) = (
            "gives 0.50 of null's",
            "0.90 of the nearest limit (raw device)",
        );
        assert!(slow.contains(gives) && slow.contains(nearest), "{slow}");
        let fast = of(4000.0);
        let (gives, nearest) = ("gives 2.00", "0.45 of the nearest limit (null)");
        assert!(fast.contains(gives) && fast.contains(nearest), "{fast}");
    }

    #[test]
    fn what_the_device_leaves_of_stocks_rate_is_said_beside_the_target() {
        let limit = [(Rate, 1250.0), (SentRate, 1600.0), (SentCpu, 0.26)];
        let record = record(&[
            ("cold-4", JAVA, "stock", &[(Rate, 1000.0), (NodeCpu, 0.4)]),
            ("cold-4", JAVA, "direct", &[(Rate, 1200.0), (NodeCpu, 0.3)]),
            ("cold-4", JAVA, LIMIT, &limit),
        ]);
        let all = verdicts(&record);
        let beside = |wanted: &str| {
            let verdict = verdict_of(&all, "cold-4", "direct", wanted);
            assert_eq!(verdict.met, Some(false), "the target itself stays");
            verdict.beside.clone().expect("said")
        };
        let cpu = beside("CPU");
        assert!(
            cpu.contains("takes 0.65 of stock's; this is 1.15 of that"),
            "{cpu}"
        );
        let rate = beside("MB/s");
        for said in [
            "gives 1.25 of stock's",
            "0.96 of the raw",
            "1.60, of which this is 0.75",
        ] {
            assert!(rate.contains(said), "{rate}");
        }
    }

    #[test]
    fn a_modelled_disk_has_targets_of_its_own() {
        let mut record = record(&[
            ("device-write", Client::None, LIMIT, &[(Rate, 95.0)]),
            ("write-1", LOAD, "direct", &[(SettledRate, 90.0)]),
            ("write-16", LOAD, "direct", &[(SettledRate, 80.0)]),
        ]);
        record.modelled = true;
        let all = verdicts(&record);
        let met = |row: &str, wanted: &str| verdict_of(&all, row, "direct", wanted).met;
        assert_eq!(met("write-1", "device-write"), Some(true));
        assert_eq!(met("write-16", "write-1's"), Some(false));
    }
}
