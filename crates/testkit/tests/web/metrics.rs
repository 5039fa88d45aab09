//! `/prom` as Prometheus reads it, under our names and under Apache's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use hayloft_testkit::error::Result;
use hayloft_testkit::suite::{expect, passed};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Outcome, TestkitError, http};
use serde_json::Value;

use crate::ask::promtool;
use crate::{Lab, OURS, STOCK};

/// Metrics of a Java virtual machine, of Jetty, of logins and of Hadoop's own metrics: a node
/// without them has none.
const OF_JAVA: [&str; 4] = [
    "jvm_metrics_",
    "http_server2_",
    "ugi_metrics_",
    "metrics_system_",
];
/// How metrics of a dashboard begin: ours, and those of both kinds of nodes.
const ASKED: [&str; 3] = ["hayloft_", "datanode_", "fs_volume_"];
/// Apache's node collects its metrics each ten seconds.
const COLLECTED: Duration = Duration::from_secs(60);

/// A family: its type, and the names of labels that its samples have.
type Families = BTreeMap<String, (String, BTreeSet<String>)>;

/// Families that are not ours.
fn families(text: &str) -> Families {
    let mut found = Families::new();
    for line in text.lines() {
        if let Some(of) = line.strip_prefix("# TYPE ") {
            if let Some((name, kind)) = of.split_once(' ') {
                found.entry(name.to_owned()).or_default().0 = kind.to_owned();
            }
        } else if let Some((name, rest)) = line.split_once('{')
            && !line.starts_with('#')
        {
            let labels = rest
                .split("=\"")
                .filter_map(|part| part.rsplit(['{', ',', ' ']).next());
            let legal = |label: &&str| label.chars().all(|c| c.is_ascii_lowercase());
            let labels = labels.filter(legal).filter(|label| !label.is_empty());
            found
                .entry(name.to_owned())
                .or_default()
                .1
                .extend(labels.map(str::to_owned));
        }
    }
    found.retain(|name, _| !name.starts_with("hayloft_"));
    found
}

/// The dashboard that operators copy.
pub fn dashboard() -> Result<Value> {
    let text = include_str!("../../../../docs/operate/examples/grafana.json");
    serde_json::from_str(text).map_err(no_json)
}

pub fn no_json(error: serde_json::Error) -> TestkitError {
    TestkitError::Talk(format!("no JSON: {error}"))
}

impl Lab {
    /// Ours, as Prometheus wants them.
    pub fn metrics(&mut self) -> Result<Outcome> {
        let text = http::get(self.web(OURS), "/prom")?;
        // Apache's names come behind ours, and are not what promtool likes.
        let is_ours = |line: &&str| {
            line.trim_start_matches("# HELP ")
                .trim_start_matches("# TYPE ")
                .starts_with("hayloft_")
        };
        let text: String = text
            .lines()
            .take_while(is_ours)
            .map(|line| format!("{line}\n"))
            .collect();
        let (mut families, mut samples) = (0, 0);
        for line in text.lines() {
            if line.starts_with("# TYPE hayloft_") {
                families += 1;
                continue;
            }
            if line.starts_with("# HELP hayloft_") {
                continue;
            }
            let (name, value) = line.rsplit_once(' ').unwrap_or((line, ""));
            let bare = name.split('{').next().unwrap_or_default();
            let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let well = bare.starts_with("hayloft_") && bare.chars().all(legal);
            expect(well && value.parse::<f64>().is_ok(), || line.to_owned())?;
            samples += 1;
        }
        println!("web: {families} families, {samples} samples");
        promtool(&["check", "metrics"], &text)?;
        let rules = Path::new(env!("CARGO_MANIFEST_DIR"));
        let rules = rules.join("../../docs/operate/examples/alerts.yml");
        promtool(&["check", "rules", &rules.display().to_string()], "")?;
        expect(families > 15 && samples > 30, || text.clone())?;
        for sample in [
            "hayloft_written_bytes_total ",
            "hayloft_operation_seconds_count{operation=\"write\",part=\"disk\"} ",
            "hayloft_operation_seconds_sum{operation=\"read\",part=\"network\"} ",
            "hayloft_timed_total{operation=\"WriteBlockOp\"} ",
        ] {
            let line = text.lines().find(|line| line.starts_with(sample));
            let moves = line.is_some_and(|line| !line.ends_with(" 0"));
            expect(moves, || format!("{sample}: {line:?}"))?;
        }
        passed()
    }

    /// Each name that the dashboard asks for is one of ours; those that are not are Apache's too.
    pub fn dashboard(&mut self) -> Result<Outcome> {
        let value = dashboard()?;
        let panels = value["panels"].as_array().into_iter().flatten();
        let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
        let asked: BTreeSet<&str> = targets
            .filter_map(|target| target["expr"].as_str())
            .flat_map(|expr| expr.split(|c: char| !(c.is_ascii_lowercase() || c == '_')))
            .filter(|word| ASKED.iter().any(|begins| word.starts_with(begins)))
            .collect();
        expect(asked.len() > 12, || format!("{asked:?}"))?;
        // Without a call there is no metric of calls.
        self.ask_rpc()?;
        for (node, wanted) in [(OURS, &ASKED[..]), (STOCK, &ASKED[1..])] {
            let text = http::get(self.web(node), "/prom")?;
            let has = |name: &str| {
                let samples = [format!("\n{name}{{"), format!("\n{name} ")];
                samples.iter().any(|sample| text.contains(sample))
            };
            let of_node = |name: &&&str| wanted.iter().any(|begins| name.starts_with(begins));
            let lacking: Vec<_> = asked
                .iter()
                .filter(of_node)
                .filter(|name| !has(name))
                .collect();
            expect(lacking.is_empty(), || format!("node {node}: {lacking:?}"))?;
        }
        passed()
    }

    /// Every name of Apache's node is there, with its type and labels.
    pub fn stock_names(&mut self) -> Result<Outcome> {
        let stock = wait::until("metrics of Apache's node", COLLECTED, || {
            let stock = families(&http::get(self.web(STOCK), "/prom")?);
            let has = |begins: &str| stock.keys().any(|name| name.starts_with(begins));
            Ok(match has("datanode_") && has("fs_volume_") && has("rpc_") {
                true => Seen::Done(stock),
                false => Seen::NotYet(format!("{} families", stock.len())),
            })
        })?;
        let ours = families(&http::get(self.web(OURS), "/prom")?);
        let of_java = |name: &str| OF_JAVA.iter().any(|begins| name.starts_with(begins));
        let mut odd = Vec::new();
        let mut same = 0;
        for (name, theirs) in stock.iter().filter(|(name, _)| !of_java(name)) {
            match ours.get(name) {
                Some(own) if own == theirs => same += 1,
                own => odd.push(format!("{name}: {own:?}, not {theirs:?}")),
            }
        }
        println!(
            "web: {same} of Apache's families, {} of Java",
            stock.len() - same - odd.len()
        );
        expect(odd.is_empty() && same > 100, || odd.join("\n"))?;
        passed()
    }
}
