//! Asking all nodes, some at once, again and again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hayloft_cluster::http::HttpLimits;
use serde_json::json;

use super::find_nodes::{KnownNode, NodeSource, fetch};
use super::finding::{Finding, Gravity, gravest};
use super::parse_live::{NodeFigures, parse};
use super::rates::{DiskRates, NodeRates, between};

/// Nodes that are asked at once.
const AT_ONCE: usize = 16;
/// What the answer of a node may cost: a disk has some 10 KiB of it.
const NODE_LIMITS: HttpLimits = HttpLimits {
    connect: Duration::from_secs(1),
    whole: Duration::from_secs(2),
    bytes: 4 << 20,
};
/// How often NameNodes are asked which nodes there are.
const SEARCH_EVERY: Duration = Duration::from_secs(15);

/// Why a node tells nothing of itself.
#[derive(Clone, Debug)]
pub struct Untold {
    /// In words.
    pub why: String,
    /// It answers, as a stock DataNode does, but not as Hayloft would.
    pub answers: bool,
}

impl From<String> for Untold {
    fn from(why: String) -> Self {
        let answers = false;
        Self { why, answers }
    }
}

type Answer = Result<(NodeFigures, NodeRates), Untold>;

/// A node as of one sample.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// Address of its web port.
    pub address: String,
    /// What its NameNode calls it; empty when none was asked.
    pub state: String,
    /// What it says, and what came of it since the sample before; or why it says nothing.
    pub answer: Answer,
    /// What is wrong or slow, the gravest first.
    pub findings: Vec<Finding>,
}

/// All nodes at about one time.
#[derive(Clone, Debug, Default)]
pub struct ClusterView {
    /// Seconds since 1970.
    pub time: f64,
    /// By address.
    pub nodes: Vec<NodeView>,
    /// What went wrong in finding nodes.
    pub problems: Vec<String>,
}

impl NodeView {
    fn new(address: &str, known: &KnownNode, answer: Answer) -> Self {
        let findings = match &answer {
            Ok((counters, _)) => counters.findings.clone(),
            Err(untold) => vec![Finding::silent(&untold.why)],
        };
        Self {
            address: address.to_owned(),
            state: known.state.clone(),
            answer,
            findings,
        }
    }

    /// Of the gravest finding.
    pub fn gravity(&self) -> Gravity {
        gravest(&self.findings)
    }

    /// What came of its answer, when there is one.
    pub fn rates(&self) -> Option<&NodeRates> {
        self.answer.as_ref().ok().map(|(_, rates)| rates)
    }

    /// Mean time of the slowest class of its slowest disk, seconds.
    pub fn latency(&self) -> f64 {
        let slowest = self.rates().and_then(NodeRates::slowest);
        slowest.map_or(0.0, DiskRates::latency)
    }

    /// Block bytes a second, in and out.
    pub fn bytes_per_second(&self) -> f64 {
        self.rates()
            .map_or(0.0, |r| r.read_per_second + r.written_per_second)
    }

    fn to_json(&self) -> serde_json::Value {
        let mut node = json!({
            "address": self.address,
            "state": self.state,
            "gravity": self.gravity(),
            "findings": self.findings,
        });
        match &self.answer {
            Ok((counters, rates)) => {
                let volumes = counters.volumes.iter();
                let errors = volumes.filter(|volume| volume.error_files > 0.0);
                let errors: BTreeMap<_, _> = errors.map(|of| (&of.path, of.error_files)).collect();
                node["uptime_seconds"] = json!(counters.up_ms / 1000.0);
                node["capacity_bytes"] = json!(counters.capacity);
                node["used_bytes"] = json!(counters.used);
                node["remaining_bytes"] = json!(counters.remaining);
                node["resident_memory_bytes"] = json!(counters.resident);
                node["failed_volumes"] = json!(counters.failed_volumes);
                node["error_files"] = json!(errors);
                node["active"] = json!({
                    "connections": counters.connections,
                    "readers": counters.reading,
                    "writers": counters.writing,
                    "transfers": counters.transfers,
                });
                node["parity_bytes"] = json!(counters.parity.clone().unwrap_or_default());
                node["rates"] = json!(rates);
            }
            Err(untold) => node["error"] = json!(untold.why),
        }
        node
    }
}

impl ClusterView {
    /// Nodes that do not answer.
    pub fn silent(&self) -> usize {
        self.nodes
            .iter()
            .filter(|node| node.answer.as_ref().is_err_and(|untold| !untold.answers))
            .count()
    }

    /// One object.
    pub fn to_json(&self) -> serde_json::Value {
        let nodes: Vec<_> = self.nodes.iter().map(NodeView::to_json).collect();
        json!({"time": self.time, "nodes": nodes, "problems": self.problems})
    }
}

type Earlier = BTreeMap<String, (Instant, NodeFigures)>;

/// Takes samples, and keeps of each node what the next one is compared with.
#[derive(Debug)]
pub struct Sampler {
    source: NodeSource,
    nodes: BTreeMap<String, KnownNode>,
    problems: Vec<String>,
    searched: Option<Instant>,
    earlier: Earlier,
}

impl Sampler {
    /// Asks nothing yet.
    pub fn new(source: NodeSource) -> Self {
        Self {
            source,
            nodes: BTreeMap::new(),
            problems: Vec::new(),
            searched: None,
            earlier: Earlier::new(),
        }
    }

    /// Asks every node once. Blocking: for a node that does not answer some seconds.
    pub fn sample(&mut self) -> ClusterView {
        if self.searched.is_none_or(|at| at.elapsed() >= SEARCH_EVERY) {
            let (nodes, problems) = self.source.find();
            // Without an answer the nodes are those of before.
            if problems.is_empty() || !nodes.is_empty() {
                self.nodes = nodes;
            }
            self.problems = problems;
            self.searched = Some(Instant::now());
        }
        let asked: Vec<_> = self.nodes.iter().collect();
        let answers = ask_all(&asked);
        let mut earlier = Earlier::new();
        let nodes = asked
            .iter()
            .zip(answers)
            .map(|((address, known), (at, answer))| {
                let answer = answer.map(|counters| {
                    let before = self.earlier.get(*address);
                    let seconds = before.map_or(0.0, |(then, _)| (at - *then).as_secs_f64());
                    let rates = between(before.map(|(_, counters)| counters), &counters, seconds);
                    earlier.insert((*address).clone(), (at, counters.clone()));
                    (counters, rates)
                });
                NodeView::new(address, known, answer)
            });
        let nodes = nodes.collect();
        self.earlier = earlier;
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        ClusterView {
            time: time.unwrap_or_default().as_secs_f64(),
            nodes,
            problems: self.problems.clone(),
        }
    }
}

/// When an answer came, and what it was.
type Timed = (Instant, Result<NodeFigures, Untold>);

/// The answers of all nodes, in their order.
fn ask_all(nodes: &[(&String, &KnownNode)]) -> Vec<Timed> {
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(Vec::with_capacity(nodes.len()));
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((address, known)) = nodes.get(at) else {
                return;
            };
            let answer = ask(address, known);
            let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.push((at, (Instant::now(), answer)));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(nodes.len()) {
            scope.spawn(work);
        }
    });
    let mut answers = answers.into_inner().unwrap_or_else(PoisonError::into_inner);
    answers.sort_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

fn ask(address: &str, known: &KnownNode) -> Result<NodeFigures, Untold> {
    if let Some(why) = &known.unasked {
        return Err(why.clone().into());
    }
    let other = |why| Untold { why, answers: true };
    let answer = fetch(address, "/live", NODE_LIMITS).map_err(|why| {
        // A status, which a stock DataNode has for a page that it lacks.
        if why.starts_with("HTTP/") {
            let told = match why.split(' ').nth(1) {
                Some("401") => "it wants a ticket; have curl ask it with --negotiate -u :",
                _ => "it is no Hayloft node",
            };
            return other(format!("answers /live with {why}: {told}"));
        }
        format!("does not answer: {why}; check that it runs and has an HTTP port").into()
    });
    parse(&answer?).map_err(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_are_not_there_are_told_in_their_order() {
        let names: Vec<String> = (0..40)
            .map(|at| format!("127.0.0.1:{}", at % 2 + 1))
            .collect();
        let known = KnownNode::default();
        let nodes: Vec<_> = names.iter().map(|name| (name, &known)).collect();
        let answers = ask_all(&nodes);
        assert_eq!(answers.len(), 40);
        let refused = |(_, answer): &Timed| {
            answer
                .as_ref()
                .is_err_and(|untold| untold.why.starts_with("does not answer: "))
        };
        assert!(answers.iter().all(refused), "{answers:?}");
        let view = Sampler::new(NodeSource::Named(names)).sample();
        assert_eq!((view.nodes.len(), view.silent()), (2, 2));
        assert_eq!(view.nodes[0].gravity(), Gravity::Trouble);
        assert!(view.to_json()["nodes"][1]["error"].is_string());
    }
}
