//! What a node says of itself at `/prom`, out of text that anything may have sent.

use std::collections::BTreeMap;

/// Disks of a node that are looked at; a text with more is cut.
const DISKS_MAX: usize = 256;
/// Classes of a disk; Hayloft has six.
const CLASSES_MAX: usize = 16;
/// NameNodes, and states of parity.
const FEW_MAX: usize = 64;
/// Characters of a name that a text gives.
const NAME_MAX: usize = 64;
/// Larger than any count of bytes.
const VALUE_MAX: f64 = 1e19;
/// Labels of one line.
const LABELS_MAX: usize = 8;

/// How long transfers took, since the node started. Seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// Half took at most so long.
    pub p50: f64,
    /// 99 in 100 took at most so long.
    pub p99: f64,
    /// All of them together.
    pub sum: f64,
    /// How many there were.
    pub count: f64,
}

/// A class of I/O on a disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassFigures {
    /// The class.
    pub name: String,
    /// Transfers.
    pub ops: f64,
    /// Their bytes.
    pub bytes: f64,
    /// Waits for their turn.
    pub queue: Times,
    /// From their turn to their end.
    pub service: Times,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskFigures {
    /// Its name.
    pub name: String,
    /// In the node's order.
    pub classes: Vec<ClassFigures>,
    /// Bytes asked in sequence; `p50` and `p99` are bytes here.
    pub runs: Times,
}

/// A NameNode as the node sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NameNodeSeen {
    /// Its address.
    pub address: String,
    /// Whether the node is registered there.
    pub registered: bool,
    /// Seconds since it answered.
    pub heartbeat_age: Option<f64>,
}

/// All that `top` uses of one answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFigures {
    /// Seconds since the node started.
    pub uptime: f64,
    /// Bytes.
    pub capacity: f64,
    /// Bytes of replicas.
    pub used: f64,
    /// Bytes that replicas may still take.
    pub remaining: f64,
    /// Volumes that have failed.
    pub failed_volumes: f64,
    /// Volumes with errors of their disks lately, and in how many files; an entry each.
    pub error_files: BTreeMap<String, f64>,
    /// Memory of the process in RAM.
    pub resident: f64,
    /// What the data transfer port does now, by name.
    pub active: BTreeMap<String, f64>,
    /// Block bytes sent.
    pub read_bytes: f64,
    /// Of those, what the kernel sent from its page cache.
    pub cached_bytes: f64,
    /// Block bytes received.
    pub written_bytes: f64,
    /// In the node's order.
    pub disks: Vec<DiskFigures>,
    /// Bytes by the state of their parity; empty without parity.
    pub parity: BTreeMap<String, f64>,
    /// In the node's order.
    pub namenodes: Vec<NameNodeSeen>,
}

/// Reads an answer. Lines that cannot be read, and families that are not known, are passed over.
///
/// # Errors
/// In words: no line is a Hayloft node's.
pub fn parse(text: &str) -> Result<NodeFigures, String> {
    let mut node = NodeFigures::default();
    let mut found = false;
    for line in text.lines() {
        let Some((name, labels, value)) = sample(line) else {
            continue;
        };
        if let Some(name) = name.strip_prefix("hayloft_") {
            found |= node.take(name, &labels, value).is_some();
        }
    }
    if found {
        return Ok(node);
    }
    Err("its /prom is not that of a Hayloft node".to_owned())
}

type Labels = Vec<(String, String)>;

/// A line: name, labels, value. A value that no counter can have makes it unreadable.
fn sample(line: &str) -> Option<(&str, Labels, f64)> {
    let line = line.trim();
    if line.starts_with('#') {
        return None;
    }
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Labels::new(), rest),
    };
    // A time stamp may follow.
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    (0.0..=VALUE_MAX)
        .contains(&value)
        .then_some((name, labels, value))
}

/// Labels up to the brace, and what follows it.
fn labels(mut rest: &str) -> Option<(Labels, &str)> {
    let mut found = Labels::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((found, rest));
        }
        if found.len() == LABELS_MAX {
            return None;
        }
        let (key, after) = rest.split_once("=\"")?;
        let (value, after) = quoted(after)?;
        found.push((shown(key), value));
        rest = after;
    }
}

/// The text up to the closing quote, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((shown(&value), &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

/// A name that may be shown: short, and without what a terminal would take as an order.
pub fn shown(text: &str) -> String {
    let safe = |c: char| if c.is_control() { '?' } else { c };
    text.chars().take(NAME_MAX).map(safe).collect()
}

fn label<'a>(labels: &'a Labels, key: &str) -> Option<&'a str> {
    let (_, value) = labels.iter().find(|(of, _)| of == key)?;
    Some(value)
}

/// The entry of that name; a new one while there is room.
fn entry<'a, T: Default>(
    of: &'a mut Vec<T>,
    room: usize,
    name: &str,
    name_of: fn(&mut T) -> &mut String,
) -> Option<&'a mut T> {
    let at = match of.iter_mut().position(|one| name_of(one) == name) {
        Some(at) => at,
        None if of.len() < room => {
            let mut new = T::default();
            name_of(&mut new).push_str(name);
            of.push(new);
            of.len() - 1
        }
        None => return None,
    };
    of.get_mut(at)
}

fn put(map: &mut BTreeMap<String, f64>, key: &str, value: f64) -> Option<()> {
    if map.len() < FEW_MAX || map.contains_key(key) {
        map.insert(key.to_owned(), value);
    }
    Some(())
}

/// As [`put`], unless it is 0: of a thousand volumes those few count that have something.
fn put_some(map: &mut BTreeMap<String, f64>, key: &str, value: f64) -> Option<()> {
    if value > 0.0 {
        put(map, key, value);
    }
    Some(())
}

impl NodeFigures {
    /// Takes a value where it belongs; `None` when it belongs nowhere.
    fn take(&mut self, name: &str, labels: &Labels, value: f64) -> Option<()> {
        let place = match name {
            "uptime_seconds" => &mut self.uptime,
            "capacity_bytes" => &mut self.capacity,
            "used_bytes" => &mut self.used,
            "remaining_bytes" => &mut self.remaining,
            "failed_volumes" => &mut self.failed_volumes,
            "resident_memory_bytes" => &mut self.resident,
            "read_bytes_total" => &mut self.read_bytes,
            "read_from_page_cache_bytes_total" => &mut self.cached_bytes,
            "written_bytes_total" => &mut self.written_bytes,
            "active" => return put(&mut self.active, label(labels, "what")?, value),
            "volume_error_files" => {
                let volume = label(labels, "volume")?;
                return put_some(&mut self.error_files, volume, value);
            }
            "parity_bytes" => return put(&mut self.parity, label(labels, "state")?, value),
            _ => {
                if let Some(of) = name.strip_prefix("namenode_") {
                    return self.take_namenode(of, labels, value);
                }
                return self.take_disk(name.strip_prefix("disk_")?, labels, value);
            }
        };
        *place = value;
        Some(())
    }

    fn take_namenode(&mut self, name: &str, labels: &Labels, value: f64) -> Option<()> {
        let address = label(labels, "namenode")?;
        let link = entry(&mut self.namenodes, FEW_MAX, address, |l| &mut l.address)?;
        match name {
            "registered" => link.registered = value > 0.0,
            "heartbeat_age_seconds" => link.heartbeat_age = Some(value),
            _ => return None,
        }
        Some(())
    }

    fn take_disk(&mut self, name: &str, labels: &Labels, value: f64) -> Option<()> {
        let disk = label(labels, "disk")?;
        let disk = entry(&mut self.disks, DISKS_MAX, disk, |d| &mut d.name)?;
        if let Some(part) = name.strip_prefix("run_bytes") {
            return disk.runs.take(part, labels, value);
        }
        let class = label(labels, "class")?;
        let class = entry(&mut disk.classes, CLASSES_MAX, class, |c| &mut c.name)?;
        match name {
            "operations_total" => class.ops = value,
            "bytes_total" => class.bytes = value,
            _ => {
                let queue = name.strip_prefix("queue_seconds");
                if let Some(part) = queue {
                    return class.queue.take(part, labels, value);
                }
                let part = name.strip_prefix("service_seconds")?;
                return class.service.take(part, labels, value);
            }
        }
        Some(())
    }
}

impl Times {
    /// `part`: what follows the name of the family.
    fn take(&mut self, part: &str, labels: &Labels, value: f64) -> Option<()> {
        let place = match (part, label(labels, "quantile")) {
            ("_sum", _) => &mut self.sum,
            ("_count", _) => &mut self.count,
            ("", Some("0.5")) => &mut self.p50,
            ("", Some("0.99")) => &mut self.p99,
            ("", Some(_)) => return Some(()),
            _ => return None,
        };
        *place = value;
        Some(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A node's answer, shortened.
    pub const RECORDED: &str = include_str!("recorded.txt");

    #[test]
    fn a_recorded_answer_is_read() {
        let node = parse(RECORDED).expect("a node");
        assert_eq!((node.uptime, node.failed_volumes), (120.0, 1.0));
        assert_eq!(node.active["writers"], 3.0);
        assert_eq!(node.parity["degraded"], 4096.0);
        let names: Vec<&str> = node.disks.iter().map(|d| &*d.name).collect();
        assert_eq!(names, ["sda", "sdb"]);
        let write = &node.disks[0].classes[0];
        assert_eq!((&*write.name, write.ops), ("client-write", 400.0));
        assert_eq!((write.queue.sum, write.service.p99), (0.8, 0.012));
        assert_eq!(
            (node.disks[0].runs.p50, node.disks[0].runs.count),
            (65536.0, 12.0)
        );
        assert!(node.namenodes[0].registered && !node.namenodes[1].registered);
        assert_eq!(node.namenodes[0].heartbeat_age, Some(0.4));
    }

    #[test]
    fn garbage_is_passed_over_and_names_are_harmless() {
        for text in [
            "",
            "\0\u{1b}[2J",
            "<html>200</html>",
            "other_metric 7\n",
            "hayloft_ 1",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        let text = "hayloft_uptime_seconds 5\nhayloft_uptime_seconds NaN\n\
            hayloft_uptime_seconds -1\nhayloft_uptime_seconds +Inf\nhayloft_uptime_seconds\n\
            hayloft_disk_bytes_total{disk=\"a\n\
            hayloft_disk_bytes_total{disk=\"\u{1b}]0;x\u{7}\\\"\",class=\"scan\"} 9 1700000000\n\
            hayloft_disk_bytes_total{class=\"scan\"} 9\nhayloft_news{a=\"b\"} 1\n";
        let node = parse(text).expect("one line is right");
        assert_eq!((node.uptime, node.disks.len()), (5.0, 1));
        assert_eq!(node.disks[0].name, "?]0;x?\"");
        assert_eq!(node.disks[0].classes[0].bytes, 9.0);
    }

    #[test]
    fn what_a_node_can_make_us_keep_is_limited() {
        let mut text = String::from("hayloft_uptime_seconds 1\n");
        for at in 0..DISKS_MAX * 2 {
            for class in 0..CLASSES_MAX * 2 {
                text += &format!("hayloft_disk_bytes_total{{disk=\"{at}\",class=\"{class}\"}} 1\n");
            }
            text += &format!("hayloft_active{{what=\"{at}\"}} 1\n");
            text += &format!("hayloft_namenode_registered{{namenode=\"{at}\"}} 1\n");
        }
        text += &format!("hayloft_parity_bytes{{state=\"{}\"}} 1\n", "x".repeat(9999));
        let node = parse(&text).expect("a node");
        assert_eq!(
            (node.disks.len(), node.disks[0].classes.len()),
            (DISKS_MAX, CLASSES_MAX)
        );
        assert_eq!(
            (node.active.len(), node.namenodes.len()),
            (FEW_MAX, FEW_MAX)
        );
        assert!(node.parity.keys().all(|key| key.len() <= NAME_MAX));
    }
}
