//! What a node says of itself at `/live`, out of text that anything may have sent.

use std::collections::BTreeMap;

use hayloft_io::IoClass;
use serde::Deserialize;
use serde_json::Value;

use super::finding::Finding;

/// Disks of a node that are looked at; an answer with more is cut.
const DISKS_MAX: usize = 256;
/// Classes of a disk; Hayloft has six.
const CLASSES_MAX: usize = 16;
/// Volumes, findings and states of parity.
const FEW_MAX: usize = 1024;
/// Characters of a name that an answer gives.
const NAME_MAX: usize = 64;
/// Characters of what was found.
const SENTENCES_MAX: usize = 1000;

/// What transfers took since the node started, all of them counted. Microseconds, or bytes of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// Half took at most so much.
    pub p50: f64,
    /// 99 in 100 took at most so much.
    pub p99: f64,
    /// All of them together.
    pub sum: f64,
    /// How many there were.
    pub count: f64,
}

/// A class of I/O on a disk.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClassFigures {
    /// The class.
    #[serde(rename = "class")]
    pub name: String,
    /// Transfers.
    pub ops: f64,
    /// Their bytes.
    pub bytes: f64,
    /// Waits for their turn.
    pub queue: Summary,
    /// From their turn to their end.
    pub service: Summary,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DiskFigures {
    /// Its name.
    pub name: String,
    /// Every class, those that did something first.
    pub classes: Vec<ClassFigures>,
    /// Bytes asked in sequence.
    pub run: Summary,
}

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct VolumeFigures {
    /// Its directory.
    pub path: String,
    /// Files with an error of its disk lately.
    pub error_files: f64,
}

/// All that `top` uses of one answer.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeFigures {
    /// Milliseconds since the node started.
    pub up_ms: f64,
    /// Bytes.
    pub capacity: f64,
    /// Bytes of replicas.
    pub used: f64,
    /// Bytes that replicas may still take.
    pub remaining: f64,
    /// Volumes that have failed.
    pub failed_volumes: f64,
    /// Memory of the process in RAM.
    pub resident: f64,
    /// Connections of the data transfer port.
    pub connections: f64,
    /// Reads that go on.
    pub reading: f64,
    /// Writes that go on.
    pub writing: f64,
    /// Copies to other nodes that go on.
    pub transfers: f64,
    /// Block bytes sent.
    pub read_bytes: f64,
    /// Of those, what the kernel sent from its page cache.
    pub cached_bytes: f64,
    /// Block bytes received.
    pub written_bytes: f64,
    /// In the node's order.
    pub volumes: Vec<VolumeFigures>,
    /// In the node's order.
    pub disks: Vec<DiskFigures>,
    /// Bytes by the state of their parity; none without parity.
    pub parity: Option<BTreeMap<String, f64>>,
    /// What the node finds wrong or slow, the gravest first.
    pub findings: Vec<Finding>,
}

/// Reads an answer. What an older node does not say is 0 or nothing, and what a newer one says
/// besides is left aside.
///
/// # Errors
/// In words: it is not what a Hayloft node says, or one of a version that is too far away.
pub fn parse(answer: &str) -> Result<NodeFigures, String> {
    let node: Option<Value> = serde_json::from_str(answer).ok();
    // Every version says these.
    let node = node.filter(|node| node["up_ms"].is_number() && node["disks"].is_array());
    let node = node.ok_or("its /live is not that of a Hayloft node")?;
    let mut node: NodeFigures = serde_json::from_value(node).map_err(|error| {
        let error = shown_within(&error.to_string(), SENTENCES_MAX);
        format!("its /live is of another version of Hayloft, use the `top` of that one: {error}")
    })?;
    node.keep_to_limits();
    Ok(node)
}

/// A name that may be shown: short, and without what a terminal would take as an order.
pub fn shown(text: &str) -> String {
    shown_within(text, NAME_MAX)
}

fn shown_within(text: &str, most: usize) -> String {
    let safe = |c: char| if c.is_control() { '?' } else { c };
    text.chars().take(most).map(safe).collect()
}

impl NodeFigures {
    /// Makes every text one that may be shown, and every list as long as it may be. Adds the
    /// classes that have done nothing, which an answer leaves out.
    fn keep_to_limits(&mut self) {
        self.findings.truncate(FEW_MAX);
        for finding in &mut self.findings {
            finding.text = shown_within(&finding.text, SENTENCES_MAX);
            for name in [&mut finding.disk, &mut finding.class] {
                *name = name.as_deref().map(shown);
            }
        }
        self.volumes.truncate(FEW_MAX);
        for volume in &mut self.volumes {
            volume.path = shown(&volume.path);
        }
        self.disks.truncate(DISKS_MAX);
        for disk in &mut self.disks {
            disk.name = shown(&disk.name);
            disk.classes.truncate(CLASSES_MAX);
            for class in &mut disk.classes {
                class.name = shown(&class.name);
            }
            for class in IoClass::ALL {
                let name = class.name();
                if disk.classes.iter().all(|told| told.name != name) {
                    disk.classes.push(ClassFigures {
                        name: name.to_owned(),
                        ..ClassFigures::default()
                    });
                }
            }
        }
        if let Some(states) = self.parity.take() {
            let states = states.into_iter().take(FEW_MAX);
            self.parity = Some(states.map(|(state, held)| (shown(&state), held)).collect());
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::super::finding::Gravity;
    use super::*;

    /// A node's answer, shortened.
    pub const RECORDED: &str = include_str!("recorded.json");

    fn recorded() -> Value {
        serde_json::from_str(RECORDED).expect("JSON")
    }

    #[test]
    fn a_recorded_answer_is_read() {
        let node = parse(RECORDED).expect("a node");
        assert_eq!((node.up_ms, node.failed_volumes), (120_000.0, 1.0));
        assert_eq!(node.writing, 3.0);
        assert_eq!(node.parity.expect("some")["degraded"], 4096.0);
        let names: Vec<&str> = node.disks.iter().map(|d| &*d.name).collect();
        assert_eq!(names, ["sda", "sdb"]);
        let write = &node.disks[0].classes[0];
        assert_eq!((&*write.name, write.ops), ("client-write", 400.0));
        assert_eq!((write.queue.sum, write.service.p99), (800_000.0, 12_000.0));
        assert_eq!(
            (node.disks[0].run.p50, node.disks[0].run.count),
            (65536.0, 12.0)
        );
        assert_eq!(node.disks[1].classes.len(), 6, "those that are idle, too");
        assert!(node.findings[1].is_about("sda", "client-write"));
    }

    #[test]
    fn other_answers_are_refused() {
        for text in ["", "\0\u{1b}[2J", "<html>200</html>", "{}", "[]"] {
            let refused = parse(text).expect_err(text);
            assert_eq!(refused, "its /live is not that of a Hayloft node");
        }
        let mut other = recorded();
        other["used"] = json!({"bytes": 1});
        let refused = parse(&other.to_string()).expect_err("of another type");
        assert!(refused.contains("another version of Hayloft"), "{refused}");
    }

    /// Nodes are exchanged one by one, so one `top` meets several versions.
    #[test]
    fn answers_of_older_and_newer_nodes_are_read() {
        let mut other = recorded();
        let node = other.as_object_mut().expect("one");
        node.retain(|name, _| ["up_ms", "disks", "findings"].contains(&&**name));
        node.insert("newer".into(), json!({"unknown": [1]}));
        other["disks"][0]["classes"][0] = json!({"class": "client-write", "newer": 1});
        other["findings"][0] = json!({"gravity": "dire", "text": "newer", "newer": 1});
        let node = parse(&other.to_string()).expect("a node");
        assert_eq!((node.up_ms, node.written_bytes), (120_000.0, 0.0));
        assert_eq!(node.findings[0].gravity, Gravity::Trouble);
        assert_eq!(node.disks[0].classes[0].queue, Summary::default());
    }

    #[test]
    fn names_are_harmless_and_lists_are_limited() {
        let mut node = recorded();
        node["disks"][0]["name"] = json!("\u{1b}]0;x\u{7}\"");
        node["findings"][0]["text"] = json!(format!("\u{1b}[2J{}", "x".repeat(9999)));
        let class = node["disks"][0]["classes"][0].clone();
        let classes = (0..CLASSES_MAX * 2).map(|at| {
            let mut class = class.clone();
            class["class"] = json!(at.to_string());
            class
        });
        node["disks"][0]["classes"] = classes.collect();
        let disk = node["disks"][0].clone();
        node["disks"] = vec![disk; DISKS_MAX * 2].into();
        node["parity"] = json!({"x".repeat(9999): 1});
        let node = parse(&node.to_string()).expect("a node");
        assert_eq!(node.disks[0].name, "?]0;x?\"");
        assert!(node.findings[0].text.starts_with("?[2Jxxx"));
        assert_eq!(node.findings[0].text.chars().count(), SENTENCES_MAX);
        let limits = (DISKS_MAX, CLASSES_MAX + IoClass::COUNT);
        assert_eq!((node.disks.len(), node.disks[0].classes.len()), limits);
        let parity = node.parity.expect("some");
        assert!(parity.keys().all(|key| key.len() <= NAME_MAX));
    }
}
