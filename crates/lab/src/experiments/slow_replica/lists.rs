//! Whom the NameNode lists as slow, and how long it takes while clients write.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::hosts::slow_address;
use super::load;
use crate::runner::record::PeerFigures;
use crate::up::Testbed;
use hayloft_testkit::driver::Driver;
use hayloft_testkit::error::{Result, TestkitError};

/// What the NameNode lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlowList {
    /// Nodes that their peers call slow.
    Nodes,
    /// Disks that their nodes call slow.
    Disks,
}

impl SlowList {
    /// The attribute of the NameNode's bean, and what names an entry.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Nodes => ("SlowPeersReport", "SlowNode"),
            Self::Disks => ("SlowDisksReport", "SlowDiskID"),
        }
    }

    /// The addresses, without ports, of the nodes that are listed, or have a disk that is.
    pub fn ask(self, testbed: &Testbed) -> Result<BTreeSet<String>> {
        self.parse(&testbed.bean("NameNodeStatus")?)
    }

    fn parse(self, bean: &Value) -> Result<BTreeSet<String>> {
        let (attribute, id) = self.names();
        let wrong = || TestkitError::Talk(format!("the NameNode's {attribute} is no list: {bean}"));
        // Before anything is slow there may be no text at all.
        let text = bean[attribute].as_str().unwrap_or_default();
        if text.is_empty() {
            return Ok(BTreeSet::new());
        }
        let list: Vec<Value> = serde_json::from_str(text).map_err(|_| wrong())?;
        let address = |entry: &Value| {
            let (address, _) = entry[id].as_str()?.split_once(':')?;
            Some(address.to_owned())
        };
        list.iter()
            .map(|one| address(one).ok_or_else(wrong))
            .collect()
    }
}

/// What came of looking at a list.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Listed {
    /// Seconds after which the slow node was there.
    pub after_s: Option<f64>,
    /// The most others that were there at once.
    pub others: usize,
}

impl Listed {
    /// Notes what is listed so long after something became slow.
    pub fn note(&mut self, listed: &BTreeSet<String>, after: Duration) {
        let is_there = listed.contains(&slow_address());
        if is_there && self.after_s.is_none() {
            self.after_s = Some(after.as_secs_f64());
        }
        self.others = self.others.max(listed.len() - usize::from(is_there));
    }

    /// Its figures.
    #[expect(clippy::cast_precision_loss, reason = "at most a dozen nodes")]
    pub fn figures(&self) -> PeerFigures {
        PeerFigures::of([("others", self.others as f64)]).with_some("listed_s", self.after_s)
    }
}

/// Has `client` write until the slow node is listed, at most until `limit` after it became slow at
/// `since`.
///
/// # Errors
/// When a client or the NameNode fails.
pub(super) fn until_listed(
    on: (&Testbed, &Driver),
    list: SlowList,
    (since, limit): (Instant, Duration),
) -> Result<Listed> {
    let mut listed = Listed::default();
    load::until(on, since + limit, &mut || {
        listed.note(&list.ask(on.0)?, since.elapsed());
        Ok(listed.after_s.is_some())
    })?;
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_are_read_by_address() {
        let bean = json!({
            "SlowPeersReport": "[{\"SlowNode\":\"10.77.0.1:9864\",\
                \"SlowPeerLatencyWithReportingNodes\":[]}]",
            "SlowDisksReport": "[{\"SlowDiskID\":\"10.77.0.4:9867:/d/hdfs/\",\"Latencies\":{}}]",
        });
        let of = |list: SlowList| list.parse(&bean).expect("it is a list");
        assert_eq!(
            of(SlowList::Nodes),
            BTreeSet::from(["10.77.0.1".to_owned()])
        );
        assert_eq!(
            of(SlowList::Disks),
            BTreeSet::from(["10.77.0.4".to_owned()])
        );
        for empty in [json!({}), json!({"SlowPeersReport": "[]"})] {
            assert_eq!(SlowList::Nodes.parse(&empty).expect("empty").len(), 0);
        }
        let error = SlowList::Nodes.parse(&json!({"SlowPeersReport": "[{}]"}));
        let error = error.expect_err("no node").to_string();
        assert!(error.contains("SlowPeersReport is no list"), "{error}");
    }

    #[test]
    fn the_first_time_counts_and_others_are_counted_apart() {
        let of = |nodes: &[&str]| nodes.iter().map(ToString::to_string).collect();
        let mut listed = Listed::default();
        listed.note(&of(&["10.77.0.5", "10.77.0.6"]), Duration::from_secs(1));
        assert_eq!(listed.figures().get("listed_s"), None);
        listed.note(&of(&[&slow_address(), "10.77.0.5"]), Duration::from_secs(4));
        listed.note(&of(&[&slow_address()]), Duration::from_secs(5));
        let wanted = Listed {
            after_s: Some(4.0),
            others: 2,
        };
        assert_eq!(listed, wanted);
    }
}
