//! A node that takes snapshots by itself.

use std::time::Duration;

use hayloft_testkit::error::{Result, expect};
use hayloft_testkit::suite::passed;
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Outcome, TestkitError, http, ports};
use serde_json::Value;

use crate::lab::Lab;

/// How long a node may take for a snapshot by itself.
const BY_ITSELF: Duration = Duration::from_secs(60);

impl Lab {
    fn configure(&mut self, to: &str, restore_from: &str) -> Result<()> {
        self.cluster.node(0).stop()?;
        let conf = self.cluster.node(0).conf_mut();
        conf.set("hayloft.snapshot.to", to)
            .set("hayloft.snapshot.restore-from", restore_from)
            .set("hayloft.snapshot.interval", "1s")
            .set("hayloft.snapshot.keep", "2");
        self.cluster.start_node(0)?;
        self.cluster.wait_all_live()
    }

    fn live(&mut self) -> Result<Value> {
        let port = self.cluster.node(0).http_port();
        let text = http::get(ports::local(port), "/live")?;
        let live: Value = serde_json::from_str(&text).unwrap_or_default();
        Ok(live["snapshots"].clone())
    }

    fn wait_state(&mut self, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        wait::until(what, BY_ITSELF, || {
            let state = self.live()?;
            Ok(match is(&state) {
                true => Seen::Done(state),
                false => Seen::NotYet(state.to_string()),
            })
        })
    }
}

pub fn a_node_by_itself(lab: &mut Lab) -> Result<Outcome> {
    let (to, _) = lab.directory()?;
    lab.configure(&to, "")?;
    let all = |state: &Value| state["lag_s"] == 0 && state["last"].is_string();
    let first = lab.wait_state("the node has a snapshot", all)?;
    expect(first["left_out"] == 0, || format!("{first}"))?;
    lab.files.put(&lab.fs, "/by-itself", 3000)?;
    let replicas = first["replicas"].as_u64().unwrap_or(0);
    let more = move |state: &Value| state["replicas"].as_u64() > Some(replicas);
    lab.wait_state("the new file is in it", more)?;
    lab.wait_state("nothing is behind", all)?;
    let port = lab.cluster.node(0).http_port();
    let prom = http::get(ports::local(port), "/prom")?;
    expect(prom.contains("\nhayloft_snapshot_lag_seconds "), || {
        prom.clone()
    })?;
    expect(prom.contains("\nhayloft_snapshot_failing 0"), || {
        prom.clone()
    })?;
    // At most two are kept, besides one that comes while they are counted.
    let kept = lab.manifests(&to)?;
    expect((1..=3).contains(&kept), || format!("{kept} snapshots"))?;
    lab.lose_the_node()?;
    lab.well("restore", &to, &[])?;
    lab.read_all_back()?;
    passed()
}

pub fn a_node_whose_store_is_missing(lab: &mut Lab) -> Result<Outcome> {
    let (to, dir) = lab.directory()?;
    std::fs::remove_dir(&dir).map_err(TestkitError::file("removing", &dir))?;
    lab.configure(&to, "")?;
    let failing = |state: &Value| state["failures"].as_u64() > Some(0);
    let state = lab.wait_state("the node says that it fails", failing)?;
    let error = state["error"].as_str().unwrap_or_default().to_owned();
    expect(error.contains("mount or make"), || error.clone())?;
    // It serves all the same, and goes on when the store is there.
    lab.files.check(&lab.fs)?;
    std::fs::create_dir(&dir).map_err(TestkitError::file("creating", &dir))?;
    let well = |state: &Value| state["error"].is_null() && state["lag_s"] == 0;
    lab.wait_state("it goes on", well)?;
    passed()
}

pub fn a_running_node_puts_it_back(lab: &mut Lab) -> Result<Outcome> {
    let (to, _) = lab.directory()?;
    let lost = lab.well("create", &to, &[])?[0]["node"].clone();
    lab.lose_the_node()?;
    // A new node, under an identity of its own, that has registered before a block is there.
    let conf = lab.cluster.node(0).conf_mut();
    conf.set("hayloft.snapshot.to", "");
    lab.cluster.start_node(0)?;
    lab.cluster.wait_all_live()?;
    let from = format!("{to}#{}", lost.as_str().unwrap_or_default());
    lab.configure(&to, &from)?;
    let done = |state: &Value| state["restored"].is_string();
    let state = lab.wait_state("the snapshot is put back", done)?;
    expect(state["restore_broken"] == 0, || format!("{state}"))?;
    lab.files.wait_replicas(&lab.fs, 1)?;
    lab.files.check(&lab.fs)?;
    let all = |state: &Value| state["lag_s"] == 0 && state["last"].is_string();
    lab.wait_state("the node has a snapshot of its own", all)?;
    passed()
}
