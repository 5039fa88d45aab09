//! Each query of the dashboard, answered by a real Prometheus that scrapes both kinds of nodes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;

use hayloft_testkit::error::Result;
use hayloft_testkit::process::{Process, Spawn};
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Outcome, TestkitError, http, ports};
use serde_json::{Value, json};

use crate::metrics::{dashboard, no_json};
use crate::{BLOCK, Lab, OURS, STOCK};

/// A stock node collects its metrics each ten seconds, and a rate needs two that differ.
const ANSWERED: u64 = 120;

/// A server that scrapes nodes.
struct Prometheus {
    process: Process,
    address: SocketAddr,
}

/// A query of the dashboard as it is sent, and whose answers it needs.
#[derive(Debug)]
struct DashboardQuery {
    sent: String,
    /// A label that each answer has, if a list of the dashboard is made of it.
    label: Option<String>,
    /// Whether only our nodes have such metrics.
    is_ours: bool,
}

/// What Grafana does to each query before it sends it, for the one node of ours at `ours`.
fn filled_in(expr: &str, ours: &str) -> String {
    expr.replace("$__rate_interval", "1m")
        .replace("$__interval", "10s")
        .replace("$instance", "$node")
        .replace("$node", ours)
}

/// All queries of the dashboard: those of its panels, and those of its variables.
fn queries(dashboard: &Value, ours: &str) -> Vec<DashboardQuery> {
    let all = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let panels = all(&dashboard["panels"]).into_iter();
    let targets = panels.flat_map(|panel| all(&panel["targets"]));
    let exprs = targets.map(|target| (target["expr"].clone(), false));
    let variables = all(&dashboard["templating"]["list"]).into_iter();
    let variables = variables.filter(|variable| variable["type"] == "query");
    let variables = variables.map(|variable| (variable["query"].clone(), true));
    let mut queries = Vec::new();
    for (text, is_of_variable) in exprs.chain(variables) {
        let text = text.as_str().unwrap_or_default();
        let inner = text
            .strip_prefix("label_values(")
            .filter(|_| is_of_variable);
        let parts = inner.and_then(|of| of.trim_end_matches(')').rsplit_once(", "));
        let (asked, label) = parts.map_or((text, None), |(of, label)| (of, Some(label.into())));
        // Nothing is above a limit while all is well: what would be compared has to be there.
        let asked = asked.split(" > ").next().unwrap_or_default();
        queries.push(DashboardQuery {
            sent: filled_in(asked, ours),
            label,
            is_ours: text.contains("hayloft_"),
        });
    }
    queries
}

impl Prometheus {
    /// `None` where the program is not installed.
    fn start(lab: &Lab, nodes: &[SocketAddr]) -> Result<Option<Self>> {
        if Command::new("prometheus")
            .arg("--version")
            .output()
            .is_err()
        {
            return Ok(None);
        }
        let dir = lab.cluster.dir().join("prometheus");
        std::fs::create_dir_all(&dir).map_err(TestkitError::file("creating", &dir))?;
        let targets: Vec<String> = nodes.iter().map(SocketAddr::to_string).collect();
        // JSON is YAML.
        let config = json!({
            "global": { "scrape_interval": "2s" },
            "scrape_configs": [{
                "job_name": "datanodes", "metrics_path": "/prom",
                "static_configs": [{ "targets": targets }],
            }],
        });
        let path = dir.join("prometheus.yml");
        let written = std::fs::write(&path, config.to_string());
        written.map_err(TestkitError::file("writing", &path))?;
        let address = ports::local(ports::free()?);
        let argv = vec![
            "prometheus".to_owned(),
            format!("--config.file={}", path.display()),
            format!("--storage.tsdb.path={}", dir.join("data").display()),
            format!("--web.listen-address={address}"),
        ];
        let process = Spawn::new("prometheus", argv, dir.join("prometheus.log")).start()?;
        Ok(Some(Self { process, address }))
    }

    fn ask(&self, path: &str) -> Result<Value> {
        let text = http::get(self.address, &format!("/api/v1/{path}"))?;
        serde_json::from_str(&text).map_err(no_json)
    }

    /// The series that answer a query, each with labels and a value.
    fn series(&self, query: &str) -> Result<Vec<Value>> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let answer = self.ask(&format!("query?query={encoded}"))?;
        let result = answer["data"]["result"].as_array();
        expect(answer["data"]["resultType"] == "vector", || {
            format!("{query}: {answer}")
        })?;
        Ok(result.cloned().unwrap_or_default())
    }

    /// Whose data answer a query: `None` stands for all nodes together. A rate of nothing is no
    /// answer, nor is a mean of nothing.
    fn answered(&self, query: &DashboardQuery) -> Result<BTreeSet<Option<String>>> {
        let least = match query.sent.contains("rate(") {
            true => f64::MIN_POSITIVE,
            false => f64::MIN,
        };
        let series = self.series(&query.sent)?.into_iter().filter(|of| {
            let value = of["value"][1]
                .as_str()
                .and_then(|text| text.parse::<f64>().ok());
            let has = |label: &String| of["metric"][label].is_string();
            value.is_some_and(|value| value.is_finite() && value >= least)
                && query.label.as_ref().is_none_or(has)
        });
        Ok(series
            .map(|of| of["metric"]["instance"].as_str().map(str::to_owned))
            .collect())
    }

    /// What went wrong when it last scraped each node.
    fn errors(&self) -> String {
        let targets = self.ask("targets?state=active").unwrap_or_default();
        let targets = targets["data"]["activeTargets"].as_array().cloned();
        let errors = targets.into_iter().flatten();
        errors
            .map(|of| of["lastError"].to_string())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

impl Lab {
    /// What the dashboard shows: bytes both ways, a flush, calls of RPC.
    fn work_to_show(&mut self, nth: usize) -> Result<()> {
        let path = format!("/shown-{nth}");
        self.fs.put(&path, 2 * BLOCK, 7, json!({}))?;
        self.fs.check(&path, 2 * BLOCK, 7)?;
        self.fs
            .create("shown", &format!("{path}-log"), 8, json!({}))?;
        self.fs.write("shown", 1000)?;
        self.fs.handle("hflush", "shown")?;
        self.fs.handle("close", "shown")?;
        self.ask_rpc()
    }

    /// Each query is answered with data of ours, and with those of Apache's node where the names
    /// are Apache's.
    pub fn dashboard_answers(&mut self) -> Result<Outcome> {
        let nodes = [OURS, STOCK].map(|node| self.web(node));
        let Some(mut prometheus) = Prometheus::start(self, &nodes)? else {
            return Ok(Outcome::Skipped("prometheus is not installed".into()));
        };
        let [ours, stock] = nodes.map(|node| node.to_string());
        let mut open = queries(&dashboard()?, &ours);
        let (all, of_stock) = (open.len(), open.iter().filter(|of| !of.is_ours).count());
        expect(all > 12 && of_stock > 2 && of_stock < all, || {
            format!("{open:?}")
        })?;
        wait::until("answers of Prometheus", seconds(60), || {
            prometheus.process.check_alive()?;
            let asked = prometheus.ask("query?query=up");
            Ok(asked.map_or_else(|e| Seen::NotYet(e.to_string()), Seen::Done))
        })?;
        let mut nth = 0;
        wait::until("data for each query", seconds(ANSWERED), || {
            self.work_to_show(nth)?;
            nth += 1;
            let mut missing = Vec::new();
            for query in open.drain(..) {
                let by = prometheus.answered(&query)?;
                let has = |node: &String| by.contains(&Some(node.clone()));
                // Only ours have the metric, or the query names our node: no other is in a sum.
                let whole = match query.is_ours {
                    true => !by.is_empty() && !has(&stock),
                    false => has(&ours) && has(&stock),
                };
                if !whole {
                    missing.push((query, by));
                }
            }
            let said = format!("{missing:?} {}", prometheus.errors());
            open.extend(missing.into_iter().map(|(query, _)| query));
            Ok(match open.is_empty() {
                true => Seen::Done(()),
                false => Seen::NotYet(said),
            })
        })?;
        println!("web: {all} queries answered, {of_stock} of them by Apache's node too");
        prometheus.process.kill()?;
        passed()
    }
}
