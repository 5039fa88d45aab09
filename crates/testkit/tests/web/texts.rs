//! Texts beside a stock node's: the block scanner's report, and the log.

use crate::ask::{ask, kind, request};
use crate::nodes::both;
use crate::{Lab, OURS, STOCK};
use hayloft_testkit::error::Result;
use hayloft_testkit::suite::{expect, expect_eq, passed};
use hayloft_testkit::{Outcome, TestkitError, http};
use serde_json::Value;

/// What a line is about: its words before the colon, or before what differs by node.
fn subject(line: &str) -> String {
    if line.starts_with("Block scanner information") {
        return "Block scanner information".into();
    }
    line.split(": ").next().unwrap_or_default().to_owned()
}

impl Lab {
    /// JSON within an attribute.
    fn inner(&mut self, node: usize, attribute: &str) -> Result<Value> {
        let beans = self.all_beans(node)?;
        let text = Self::bean(&beans, "DataNodeInfo")?[attribute].clone();
        let text = text.as_str().unwrap_or_default();
        serde_json::from_str(text)
            .map_err(|error| TestkitError::Talk(format!("{attribute} {text:?} of {node}: {error}")))
    }

    pub fn texts(&mut self) -> Result<Outcome> {
        for attribute in ["VolumeInfo", "BPServiceActorInfo", "NamenodeAddresses"] {
            let (ours, stock) = (self.inner(OURS, attribute)?, self.inner(STOCK, attribute)?);
            let first = |value: &Value| match value {
                Value::Array(list) => list.first().cloned(),
                Value::Object(map) => map.values().next().cloned(),
                _ => None,
            };
            let (own, apache) = (first(&ours), first(&stock));
            let (Some(own), Some(apache)) = (own, apache) else {
                return Err(TestkitError::Expectation(format!("{attribute} is empty")));
            };
            for (name, theirs) in apache.as_object().into_iter().flatten() {
                expect(kind(&own[name]) == kind(theirs), || {
                    format!("{attribute} {name}: {} is not as {theirs}", own[name])
                })?;
            }
        }
        passed()
    }

    pub fn scanner_report(&mut self) -> Result<Outcome> {
        let [ours, stock] = both(&mut self.cluster, [OURS, STOCK], |web| {
            http::get(web, "/blockScannerReport")
        })?;
        let subjects = |text: &str| text.lines().map(subject).collect::<Vec<_>>();
        let (own, apache) = (subjects(&ours), subjects(&stock));
        // The nodes may differ in how many volumes they have.
        let first = |lines: &[String]| lines.iter().take(12).cloned().collect::<Vec<_>>();
        expect_eq("lines of the report", first(&own), first(&apache))?;
        let width = |text: &str| {
            let line = text.lines().find(|line| line.starts_with("Blocks scanned"));
            line.map(str::len)
        };
        expect_eq("width of a line", width(&ours), width(&stock))?;
        passed()
    }

    pub fn logs(&mut self) -> Result<Outcome> {
        let web = self.web(OURS);
        let moved = ask(web, &request("GET", "/logs", ""))?;
        let well = matches!(moved.code(), Some(302 | 303)) && moved.has("location: /logs/");
        expect(well, || moved.head.clone())?;
        let log = self.cluster.node(OURS).log();
        let name = log.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let listing = http::get(web, "/logs/")?;
        expect(listing.contains(&format!("/logs/{name}\"")), || {
            listing.clone()
        })?;
        expect(!listing.contains("conf"), || listing.clone())?;
        let text = http::get(web, &format!("/logs/{name}"))?;
        expect(text.contains("storage node starts"), || text.clone())?;
        for path in [
            "/logs/conf",
            "/logs/conf/hdfs-site.xml",
            "/logs/../conf/hdfs-site.xml",
            "/logs/%2e%2e%2fconf%2fhdfs-site.xml",
            "/logs/%2fetc%2fpasswd",
            "/logs//etc/passwd",
            "/logs/nope",
        ] {
            let answer = ask(web, &request("GET", path, ""))?;
            let refused = matches!(answer.code(), Some(400 | 404));
            expect(refused && !answer.body.contains("root:"), || {
                format!("{path}: {}", answer.head)
            })?;
        }
        passed()
    }
}
