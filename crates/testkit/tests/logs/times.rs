//! How long HBase takes on our nodes and on stock ones: until a log is rolled, and until all
//! regions of a killed server are served again, by splits of logs and recoveries of leases.

use crate::hbase::BEST_EFFORT;
use crate::hbase_server::HBase;
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop_conf::Conf;
use hayloft_testkit::hbase::fetched;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::{Cluster, Outcome, Suite, TestkitError};
use std::path::Path;
use std::time::SystemTime;

/// Rolls, and kills, of which the median counts.
const ROLLS: usize = 9;
const KILLS: usize = 3;
/// Rows that lie in logs alone when their server is killed: several files of 4 MiB.
const ROWS: &str = "50000";
/// What is measured, and by how much it may exceed one and a half times stock's, milliseconds.
const MEASURED: [(&str, u64); 3] = [
    ("to roll a log", 1000),
    ("from a server's kill until all is served", 5000),
    ("of that after the master has noticed", 5000),
];

/// Milliseconds of each of [`MEASURED`].
type Times = [Vec<u64>; MEASURED.len()];

pub fn cases(suite: &mut Suite) {
    let name = "hbase_asyncfs_takes_the_times_of_stock_nodes";
    suite.case(name, || match fetched() {
        Ok(home) => as_on_stock_nodes(&home, "asyncfs"),
        Err(why) => Ok(Outcome::Skipped(why)),
    });
}

/// Each median is at most one and a half times that of stock nodes, and a little.
fn as_on_stock_nodes(home: &Path, provider: &'static str) -> Result<Outcome> {
    let ours = measure(home, provider, Kind::under_test())?;
    let stocks = measure(home, provider, Kind::Apache)?;
    let mut late = Vec::new();
    for (((what, more), ours), stocks) in MEASURED.into_iter().zip(ours).zip(stocks) {
        let said = format!("{what}, ms: {ours:?}, on stock nodes {stocks:?}");
        println!("logs: {said}");
        let limit = median(stocks) * 3 / 2 + more;
        if median(ours) > limit {
            late.push(format!("{said}: the median is above {limit}"));
        }
    }
    expect(late.is_empty(), || late.join("; "))?;
    passed()
}

fn median(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times[times.len() / 2]
}

fn measure(home: &Path, provider: &'static str, kind: Kind) -> Result<Times> {
    let cluster = Cluster::builder("logs-times").conf(BEST_EFFORT, true);
    let cluster = cluster.nodes(3, kind).start()?;
    let times = measure_on(home, provider, &cluster);
    cluster.conclude(times.is_err());
    times
}

fn measure_on(home: &Path, provider: &'static str, cluster: &Cluster) -> Result<Times> {
    // HBase looks again after 4 s, then each second: that would hide what a recovery takes.
    let keys = Conf::new()
        .with("zookeeper.session.timeout", seconds(10).as_millis())
        .with("hbase.lease.recovery.first.pause", 500)
        .with("hbase.lease.recovery.pause", 50);
    let mut hbase = HBase::start(home, cluster, provider, &keys)?;
    let mut times = Times::default();
    let none = || TestkitError::Expectation("no region server".into());
    let server = hbase.region_server.as_ref().ok_or_else(none)?;
    let log = server.log().display().to_string();
    let client = hbase.begin(&["roll", &ROLLS.to_string(), &log])?;
    let log = client.0.log().to_owned();
    client.end()?;
    times[0] = numbers(&log, "rolled ");
    expect(times[0].len() == ROLLS, || format!("{:?}", times[0]))?;
    for kill in 0..KILLS {
        let mut client = hbase.begin(&["outage", &format!("outage-{kill}"), ROWS])?;
        client.wait_said("the table is made")?;
        let mut first = hbase.region_server.take().ok_or_else(none)?;
        hbase.start_region_server()?;
        client.wait_said("there are two servers")?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let killed = u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or_default();
        first.kill()?;
        let log = client.0.log().to_owned();
        client.end()?;
        let said = [numbers(&log, "noticed "), numbers(&log, "served ")].concat();
        let [noticed, served] = said[..] else {
            return Err(TestkitError::Expectation(format!("{said:?}")));
        };
        times[1].push(served.saturating_sub(killed));
        times[2].push(served.saturating_sub(noticed));
    }
    Ok(times)
}

/// The numbers behind a word that begins a line.
fn numbers(log: &Path, word: &str) -> Vec<u64> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.strip_prefix(word));
    lines.filter_map(|number| number.parse().ok()).collect()
}
