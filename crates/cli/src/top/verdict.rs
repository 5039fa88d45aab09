//! What is wrong or slow at a node, and why: one sentence each, the gravest first.

use serde::Serialize;

use super::parse::NodeFigures;
use super::rates::{ClassRates, DiskRates, NodeRates};
use super::units::{bytes, time};

/// A mean transfer that takes longer is worth a word, seconds.
const SLOW: f64 = 0.05;
/// And longer than this is a trouble.
const VERY_SLOW: f64 = 0.5;
/// Runs shorter than this make a hard disk seek more than it transfers, bytes.
const SHORT_RUN: f64 = (1 << 20) as f64;
/// A NameNode calls a node stale after 30 s.
const HEARTBEAT_OLD: f64 = 30.0;
/// Part of the capacity below which a node is nearly full.
const SPACE_LOW: f64 = 0.05;

/// How grave something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Gravity {
    /// Nothing to do.
    #[default]
    Fine,
    /// To look at.
    Slow,
    /// To act on.
    Trouble,
}

impl Gravity {
    /// A sign that needs no colour.
    pub fn mark(self) -> &'static str {
        match self {
            Self::Fine => " ",
            Self::Slow => "~",
            Self::Trouble => "!",
        }
    }
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// How grave.
    pub gravity: Gravity,
    /// What, and why.
    pub text: String,
}

/// Everything found at a node, the gravest first.
pub fn judge(node: &NodeFigures, rates: &NodeRates) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut say = |gravity, text: String| found.push(Finding { gravity, text });
    if node.failed_volumes > 0.0 {
        say(
            Gravity::Trouble,
            format!("failed volumes: {}", node.failed_volumes),
        );
    }
    for (volume, files) in &node.error_files {
        say(
            Gravity::Trouble,
            format!("disk of {volume}: errors in {files} files"),
        );
    }
    for link in &node.namenodes {
        let at = &link.address;
        if !link.registered {
            say(Gravity::Trouble, format!("not registered at NameNode {at}"));
        } else if let Some(age) = link.heartbeat_age.filter(|age| *age > HEARTBEAT_OLD) {
            say(
                Gravity::Trouble,
                format!("NameNode {at} has not answered for {age:.0} s"),
            );
        }
    }
    for state in ["lost", "damaged", "degraded", "overdue"] {
        let held = node.parity.get(state).copied().unwrap_or(0.0);
        if held > 0.0 {
            say(Gravity::Trouble, format!("parity: {} {state}", bytes(held)));
        }
    }
    if node.capacity > 0.0 && node.remaining < node.capacity * SPACE_LOW {
        let left = bytes(node.remaining);
        say(Gravity::Slow, format!("nearly full: {left} left"));
    }
    for disk in &rates.disks {
        for class in &disk.classes {
            if let Some((gravity, text)) = slow(disk, class) {
                say(gravity, text);
            }
        }
    }
    found.sort_by_key(|finding| std::cmp::Reverse(finding.gravity));
    found
}

/// How grave the mean time of a class is.
pub fn gravity(class: &ClassRates) -> Gravity {
    match class.latency() {
        Some(of) if of >= VERY_SLOW => Gravity::Trouble,
        Some(of) if of >= SLOW => Gravity::Slow,
        _ => Gravity::Fine,
    }
}

/// Why transfers of a class take long, when they do.
fn slow(disk: &DiskRates, class: &ClassRates) -> Option<(Gravity, String)> {
    let gravity = gravity(class);
    if gravity == Gravity::Fine {
        return None;
    }
    let latency = class.latency()?;
    let (wait, service) = (class.queue_mean.unwrap_or(0.0), class.service_mean?);
    let why = if wait > service {
        let busiest = disk
            .classes
            .iter()
            .max_by(|a, b| busy(a).total_cmp(&busy(b)));
        let busiest = busiest.filter(|b| b.class != class.class && busy(b) > busy(class));
        let behind = busiest.map_or(String::new(), |b| format!(" behind {}", b.class));
        format!("{} of it waiting{behind}", time(wait))
    } else if let Some(run) = disk.run_mean.filter(|run| *run < SHORT_RUN) {
        format!("the disk seeks: runs of {}", bytes(run))
    } else {
        "the disk itself is slow".to_owned()
    };
    let took = time(latency);
    Some((
        gravity,
        format!("{} {}: {took}, {why}", disk.disk, class.class),
    ))
}

/// How much of the disk's time a class takes.
fn busy(class: &ClassRates) -> f64 {
    class.ops_per_second * class.service_mean.unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::super::parse::{parse, tests::RECORDED};
    use super::*;

    fn class(name: &str, ops: f64, wait: f64, service: f64) -> ClassRates {
        ClassRates {
            class: name.to_owned(),
            ops_per_second: ops,
            queue_mean: Some(wait),
            service_mean: Some(service),
            ..ClassRates::default()
        }
    }

    fn words(classes: Vec<ClassRates>, run: f64) -> Vec<String> {
        let disks = vec![DiskRates {
            disk: "sda".into(),
            classes,
            run_mean: Some(run),
            run_p50: run,
        }];
        let rates = NodeRates {
            disks,
            ..NodeRates::default()
        };
        let found = judge(&NodeFigures::default(), &rates);
        found.into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn the_reason_is_the_queue_the_seeks_or_the_disk() {
        let far = 64e6;
        assert!(words(vec![class("client-read", 1.0, 0.001, 0.01)], far).is_empty());
        let queue = vec![
            class("client-read", 1.0, 0.3, 0.01),
            class("client-write", 90.0, 0.0, 0.01),
        ];
        assert_eq!(
            words(queue, far),
            ["sda client-read: 310 ms, 300 ms of it waiting behind client-write"]
        );
        let seeks = words(vec![class("client-read", 9.0, 0.0, 0.08)], 65536.0);
        assert_eq!(
            seeks,
            ["sda client-read: 80 ms, the disk seeks: runs of 64.0 KiB"]
        );
        let slow = words(vec![class("scan", 9.0, 0.0, 0.9)], far);
        assert_eq!(slow, ["sda scan: 900 ms, the disk itself is slow"]);
    }

    #[test]
    fn the_gravest_comes_first() {
        let errors = "hayloft_volume_error_files{volume=\"/data/2\"} 3\n";
        let mut node = parse(&format!("{RECORDED}{errors}")).expect("read");
        node.remaining = 1.0;
        let found = judge(&node, &NodeRates::default());
        let texts: Vec<&str> = found.iter().map(|f| &*f.text).collect();
        assert_eq!(
            texts,
            [
                "failed volumes: 1",
                "disk of /data/2: errors in 3 files",
                "not registered at NameNode nn2:8020",
                "parity: 4.0 KiB degraded",
                "nearly full: 1 B left",
            ]
        );
        assert_eq!(found[0].gravity.mark(), "!");
        assert_eq!(found[4].gravity.mark(), "~");
    }
}
