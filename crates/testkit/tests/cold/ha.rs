//! `hayloft cold scan` where one NameNode of two is active.

use super::lab::cold_scan;
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite};
use serde_json::json;

/// Adds the case.
pub fn cases(suite: &mut Suite) {
    let mut on = suite.group(start, |(cluster, _), failed| cluster.conclude(failed));
    on.case("the_active_namenode_is_found", |(cluster, fs)| {
        active(cluster, fs)
    });
}

fn start() -> Result<(Cluster, Driver)> {
    let cluster = Cluster::builder("cold-ha")
        .ha()
        .nodes(1, Kind::under_test())
        .conf("dfs.replication", 1)
        .start()?;
    let fs = cluster.driver()?;
    // The second of the list.
    let args = ["-ns", "ns1", "-transitionToActive", "nn2"];
    fs.tool(class::HAADMIN, &args)?.ok()?;
    cluster.wait_all_live()?;
    fs.put("/f", 1000, 1, json!({}))?;
    fs.fs(&["-touch", "-c", "-t", "20200101:000000", "/f"])?;
    Ok((cluster, fs))
}

fn active(cluster: &mut Cluster, fs: &Driver) -> Result<Outcome> {
    let words = ["--older-than=180d", "--live", "--json"];
    let conf = cluster.client_conf_dir();
    for active in ["nn2", "nn1"] {
        let scan = cold_scan(&conf, None, &words)?;
        expect(scan.code == Some(0), || format!("{active}: {}", scan.said))?;
        let files = scan.answer["found"]["total"]["cold_files"].as_u64();
        expect_eq(active, files, Some(1))?;
        if active == "nn2" {
            for command in [
                ["-transitionToStandby", "nn2"],
                ["-transitionToActive", "nn1"],
            ] {
                let args = [&["-ns", "ns1"], &command[..]].concat();
                fs.tool(class::HAADMIN, &args)?.ok()?;
            }
        }
    }
    // A NameNode that is gone is passed over.
    cluster.namenode(1).kill()?;
    let scan = cold_scan(
        &conf,
        None,
        &["--nameservice=ns1", "--older-than=180d", "--live"],
    )?;
    expect(scan.code == Some(0), || scan.said.clone())?;
    cluster.namenode(0).kill()?;
    let scan = cold_scan(&conf, None, &words)?;
    expect(
        scan.code == Some(2) && scan.said.contains("check that the NameNode"),
        || format!("{:?} {}", scan.code, scan.said),
    )?;
    passed()
}
