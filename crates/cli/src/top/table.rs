//! Rows of nodes and of a node's disks, for the screen and as text.

use std::fmt::Write as _;

use super::ask_nodes::{ClusterView, NodeView};
use super::finding::{Finding, Gravity, gravest};
use super::rates::{ClassRates, DiskRates, NodeRates};
use super::units::{bytes, number, rate, time, time_or_dash};

/// Columns from which on all is shown.
pub const WIDE: u16 = 78;

/// A column: heading, width, and whether a narrow screen shows it. Width 0 takes what is left.
pub type Column = (&'static str, u16, bool);

/// Columns of nodes.
pub const NODE_COLUMNS: [Column; 8] = [
    ("", 1, true),
    ("NODE", 0, true),
    ("STATE", 10, false),
    ("USED", 8, false),
    ("FREE", 8, true),
    ("READ/s", 8, false),
    ("WRITE/s", 8, false),
    ("SLOWEST", 7, true),
];

/// Columns of disks. P99 holds since the node started, all else for the interval.
pub const DISK_COLUMNS: [Column; 9] = [
    ("DISK", 0, true),
    ("CLASS", 12, true),
    ("BYTES/s", 8, true),
    ("OPS/s", 6, false),
    ("QUEUE", 6, false),
    ("WAIT", 7, false),
    ("SERVICE", 7, true),
    ("P99", 7, false),
    ("RUN", 8, false),
];

/// What nodes are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeOrder {
    /// Trouble first, then the slowest.
    #[default]
    Slowest,
    /// The most bytes a second first.
    Busiest,
    /// The fewest bytes free first.
    Fullest,
    /// By address.
    Name,
}

impl NodeOrder {
    /// The one after it, and the first after the last.
    pub fn next(self) -> Self {
        match self {
            Self::Slowest => Self::Busiest,
            Self::Busiest => Self::Fullest,
            Self::Fullest => Self::Name,
            Self::Name => Self::Slowest,
        }
    }

    /// As shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Slowest => "slowest",
            Self::Busiest => "busiest",
            Self::Fullest => "fullest",
            Self::Name => "name",
        }
    }
}

/// The nodes in order.
pub fn sorted(view: &ClusterView, order: NodeOrder) -> Vec<&NodeView> {
    let mut nodes: Vec<&NodeView> = view.nodes.iter().collect();
    let free = |node: &NodeView| match &node.answer {
        Ok((counters, _)) => counters.remaining,
        Err(_) => f64::MAX,
    };
    match order {
        NodeOrder::Slowest => nodes.sort_by(|a, b| {
            let grave = b.gravity().cmp(&a.gravity());
            grave.then(b.latency().total_cmp(&a.latency()))
        }),
        NodeOrder::Busiest => {
            nodes.sort_by(|a, b| b.bytes_per_second().total_cmp(&a.bytes_per_second()));
        }
        NodeOrder::Fullest => nodes.sort_by(|a, b| free(a).total_cmp(&free(b))),
        NodeOrder::Name => {}
    }
    nodes
}

/// A node's row, by [`NODE_COLUMNS`].
pub fn node_row(node: &NodeView) -> [String; 8] {
    let mark = node.gravity().mark().to_owned();
    let name = node.address.clone();
    let (counters, rates) = match &node.answer {
        Ok(told) => told,
        Err(untold) => {
            let state = match &*node.state {
                "Dead" => "Dead",
                "" if untold.answers => "no Hayloft",
                state if untold.answers => state,
                _ => "no answer",
            };
            let [a, b, c, d, e] = [(); 5].map(|()| "-".to_owned());
            return [mark, name, state.to_owned(), a, b, c, d, e];
        }
    };
    let state = match &*node.state {
        "" => "answers",
        state => state,
    };
    let slowest = match rates.seconds {
        None => "...".to_owned(),
        Some(_) => time_or_dash(rates.slowest().map(DiskRates::latency)),
    };
    [
        mark,
        name,
        state.to_owned(),
        bytes(counters.used),
        bytes(counters.remaining),
        rate(rates.read_per_second),
        rate(rates.written_per_second),
        slowest,
    ]
}

/// A class that has done anything since the start.
fn used(class: &&ClassRates) -> bool {
    class.ops_per_second > 0.0 || class.service_p99 > 0.0 || class.queue_p99 > 0.0
}

/// Rows of a node's disks by [`DISK_COLUMNS`], the slowest first, each as grave as what the node
/// found about it.
pub fn disk_rows(rates: &NodeRates, findings: &[Finding]) -> Vec<(Gravity, [String; 9])> {
    let mut disks: Vec<&DiskRates> = rates.disks.iter().collect();
    disks.sort_by(|a, b| b.latency().total_cmp(&a.latency()));
    let mut rows = Vec::new();
    for disk in disks {
        let run = disk.run_mean.map_or("-".to_owned(), bytes);
        let mut classes: Vec<&ClassRates> = disk.classes.iter().filter(used).collect();
        let latency = |class: &ClassRates| class.latency().unwrap_or(-1.0);
        classes.sort_by(|a, b| latency(b).total_cmp(&latency(a)));
        if classes.is_empty() {
            let mut row = [(); 9].map(|()| "-".to_owned());
            (row[0], row[1]) = (disk.disk.clone(), "idle".to_owned());
            rows.push((Gravity::Fine, row));
        }
        for class in classes {
            let row = [
                disk.disk.clone(),
                class.class.clone(),
                rate(class.bytes_per_second),
                number(class.ops_per_second),
                number(class.queue),
                time_or_dash(class.queue_mean),
                time_or_dash(class.service_mean),
                time(class.service_p99),
                run.clone(),
            ];
            let about = |found: &&Finding| found.is_about(&disk.disk, &class.class);
            rows.push((gravest(findings.iter().filter(about)), row));
        }
    }
    rows
}

/// Everything as text: the nodes, the slowest first, their disks, and what was found.
pub fn text(view: &ClusterView) -> String {
    let mut out = String::new();
    let nodes = sorted(view, NodeOrder::Slowest);
    let rows: Vec<Vec<String>> = nodes.iter().map(|n| node_row(n).to_vec()).collect();
    let heads: Vec<&str> = NODE_COLUMNS.iter().map(|column| column.0).collect();
    lines(&mut out, &heads, &rows);
    let mut rows = Vec::new();
    for node in &nodes {
        let disks = node.rates().map(|rates| disk_rows(rates, &node.findings));
        for (gravity, row) in disks.unwrap_or_default() {
            let mut line = vec![gravity.mark().to_owned(), node.address.clone()];
            line.extend(row);
            rows.push(line);
        }
    }
    if !rows.is_empty() {
        let columns = DISK_COLUMNS.iter().map(|column| column.0);
        let heads: Vec<&str> = ["", "NODE"].into_iter().chain(columns).collect();
        out.push('\n');
        lines(&mut out, &heads, &rows);
    }
    if view.silent() > 0 || nodes.iter().any(|n| !n.findings.is_empty()) {
        out.push('\n');
    }
    for node in &nodes {
        for found in &node.findings {
            let _ = writeln!(
                out,
                "{} {}: {}",
                found.gravity.mark(),
                node.address,
                found.text
            );
        }
    }
    for problem in &view.problems {
        let _ = writeln!(out, "! {problem}");
    }
    out
}

/// Rows under their headings, in columns as wide as they need.
fn lines(out: &mut String, heads: &[&str], rows: &[Vec<String>]) {
    let width = |at: usize, head: &str| {
        let cells = rows.iter().filter_map(|row| row.get(at));
        let most = cells.map(|cell| cell.chars().count()).max();
        most.unwrap_or(0).max(head.len()).max(1)
    };
    let widths: Vec<usize> = heads
        .iter()
        .enumerate()
        .map(|(at, h)| width(at, h))
        .collect();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        let padded: Vec<String> = padded.collect();
        let _ = writeln!(out, "{}", padded.join("  ").trim_end());
    };
    line(&mut heads.iter().copied());
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::parse_live::{parse, tests::RECORDED};
    use super::super::rates::between;
    use super::*;

    /// One node that is well but for what its answer says, one that is silent.
    pub fn view() -> ClusterView {
        let before = parse(RECORDED).expect("read");
        let mut now = before.clone();
        now.up_ms += 1000.0;
        now.written_bytes += 5.0 * 1024.0 * 1024.0;
        let write = &mut now.disks[0].classes[0];
        write.ops += 10.0;
        write.bytes += 2.0 * 1024.0 * 1024.0;
        write.service.count += 10.0;
        write.service.sum += 8e5;
        let rates = between(Some(&before), &now, 1.0);
        let findings = now.findings.clone();
        let well = NodeView {
            address: "10.0.0.1:9864".into(),
            state: "In Service".into(),
            answer: Ok((now, rates)),
            findings,
        };
        let mut idle = well.clone();
        idle.address = "10.0.0.3:9864".into();
        idle.findings.clear();
        idle.answer = Ok((before.clone(), between(Some(&before), &before, 1.0)));
        let why = "does not answer: Connection refused".to_owned();
        let silent = NodeView {
            address: "10.0.0.2:9864".into(),
            state: String::new(),
            findings: vec![Finding::silent(&why)],
            answer: Err(why.into()),
        };
        ClusterView {
            time: 1e9,
            nodes: vec![idle, silent, well],
            problems: Vec::new(),
        }
    }

    #[test]
    fn the_order_is_the_one_asked_for() {
        let view = view();
        let first = |order| &*sorted(&view, order)[0].address;
        assert_eq!(first(NodeOrder::Slowest), "10.0.0.1:9864");
        assert_eq!(first(NodeOrder::Busiest), "10.0.0.1:9864");
        assert_eq!(first(NodeOrder::Name), "10.0.0.3:9864");
        let mut order = NodeOrder::default();
        for _ in 0..4 {
            order = order.next();
        }
        assert_eq!(order, NodeOrder::default());
    }

    #[test]
    fn a_stock_node_has_the_state_that_its_namenode_tells() {
        let mut stock = view().nodes.remove(1);
        let (why, answers) = (String::new(), true);
        stock.answer = Err(super::super::ask_nodes::Untold { why, answers });
        assert_eq!(node_row(&stock)[2], "no Hayloft");
        stock.state = "In Service".into();
        assert_eq!(node_row(&stock)[2], "In Service");
    }

    #[test]
    fn the_text_has_nodes_disks_and_reasons() {
        let text = text(&view());
        for part in [
            "!  10.0.0.1:9864  In Service  931 GiB  2.6 TiB  -",
            "!  10.0.0.2:9864  no answer",
            "client-write  2.0 MiB  10",
            "80 ms",
            "! 10.0.0.2:9864: does not answer: Connection refused",
            "~  10.0.0.1:9864  sda",
            "! 10.0.0.1:9864: The volume /data/2 has failed: Input/output error.",
            "~ 10.0.0.1:9864: On the disk sda, a client-write takes 80.0 ms on average: ",
            "idle",
        ] {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
    }
}
