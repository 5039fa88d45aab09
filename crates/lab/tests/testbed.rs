//! Testbeds: hosts and links as described, a cluster on them, a workload, and nothing left behind.

use hayloft_lab::describe::Description;
use hayloft_lab::up::{self, Testbed};
use hayloft_lab::{missing, missing_for_mapping, net, report, workload};
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::suite::{expect, passed};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::where_processes_run;
use hayloft_testkit::{Outcome, Suite, TestkitError};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Mbit/s of the links here: slow enough to be far from what two processors can move.
const LINK: u32 = 80;

fn described(name: &str, node: &str) -> Description {
    let text = format!(
        r#"
        name = "{name}"
        network = {{ link_mbit = {LINK}, uplink_mbit = 40 }}
        [[rack]]
        name = "r1"
        [[rack.host]]
        name = "s1"
        {node}
        [[rack.host]]
        name = "c1"
        client = true
        [[rack]]
        name = "r2"
        [[rack.host]]
        name = "s2"
        {node}
        [workload]
        mib = 16
        block_mib = 8
        "#
    );
    Description::parse(&text).expect("the description is right")
}

const HAYLOFT: &str = "[[rack.host.node]]";

fn main() -> ExitCode {
    Suite::run("testbed", |suite| {
        suite.case("links_have_their_rates", || {
            on_network(links_have_their_rates)
        });
        suite.case("what_a_killed_lab_left_is_removed", || on_network(sweep));
        suite.case("a_cluster_works_and_leaves_nothing", || on_network(cluster));
        suite.case("tasks_run_beside_their_data", || on_network(yarn));
        suite.case("a_disk_of_another_host_works_and_goes", mapped);
        suite.case(
            "a_wrong_policy_stops_the_namenode_with_one_sentence",
            || on_network(wrong_policy),
        );
        suite.case("a_mistake_is_said_before_anything_is_made", mistake);
        Ok(())
    })
}

/// Runs a case where namespaces can be made.
fn on_network(case: impl FnOnce() -> Result<Outcome>) -> Result<Outcome> {
    match missing(false) {
        None => case(),
        Some(what) => Ok(Outcome::Skipped(format!("this machine lacks {what}"))),
    }
}

/// A testbed's network that goes with the case.
struct Links(&'static str);

impl Drop for Links {
    fn drop(&mut self) {
        let _already_failing = net::remove(self.0);
    }
}

/// MB/s of one TCP stream from one host to another.
fn rate(name: &str, from: (&str, usize), to: (&str, usize)) -> Result<f64> {
    const BYTES: usize = 6 << 20;
    let address = format!("{}:7001", net::address(Some(to.1)));
    let (ready, listening) = mpsc::channel();
    let receiver = {
        let (namespace, address) = (net::namespace(name, to.0), address.clone());
        std::thread::spawn(move || {
            where_processes_run::within(&namespace, move || {
                let io = |e: std::io::Error| TestkitError::Talk(e.to_string());
                let listener = TcpListener::bind(&address).map_err(io)?;
                let _gone = ready.send(());
                let (mut stream, _) = listener.accept().map_err(io)?;
                let start = Instant::now();
                let mut buffer = vec![0; 1 << 20];
                let mut got = 0;
                while got < BYTES {
                    match stream.read(&mut buffer).map_err(io)? {
                        0 => break,
                        n => got += n,
                    }
                }
                Ok((got, start.elapsed()))
            })
        })
    };
    let late = |_| TestkitError::Talk("no server listens".into());
    listening
        .recv_timeout(Duration::from_secs(10))
        .map_err(late)?;
    where_processes_run::within(&net::namespace(name, from.0), move || {
        let io = |e: std::io::Error| TestkitError::Talk(e.to_string());
        let mut stream = TcpStream::connect(&address).map_err(io)?;
        stream.write_all(&vec![7; BYTES]).map_err(io)
    })?;
    let (got, took) = receiver.join().expect("the receiver does not panic")?;
    expect(got == BYTES, || format!("{got} of {BYTES} bytes came"))?;
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let mbs = got as f64 / 1e6 / took.as_secs_f64();
    Ok(mbs)
}

fn links_have_their_rates() -> Result<Outcome> {
    let name = "tlinks";
    net::remove(name)?;
    net::make(&described(name, ""))?;
    let _links = Links(name);
    // Within a rack 80 Mbit/s are 10 MB/s; between racks the uplink of 40 Mbit/s is narrower.
    let within = rate(name, ("c1", 1), ("s1", 0))?;
    let between = rate(name, ("c1", 1), ("s2", 2))?;
    expect((7.0..12.5).contains(&within), || {
        format!("{within} MB/s within a rack")
    })?;
    expect((3.0..6.5).contains(&between), || {
        format!("{between} MB/s between racks")
    })?;
    passed()
}

/// A lab that was killed leaves namespaces and processes in them.
fn sweep() -> Result<Outcome> {
    let name = "tsweep";
    net::remove(name)?;
    net::make(&described(name, ""))?;
    let links = Links(name);
    let sleep = ["sleep", "300"].map(String::from).to_vec();
    let argv = where_processes_run::inside(&net::namespace(name, "c1"), sleep);
    let mut left = std::process::Command::new(&argv[0])
        .args(&argv[1..])
        .spawn()
        .map_err(TestkitError::file("starting", "sleep"))?;
    let comm = format!("/proc/{}/comm", left.id());
    wait::until("a process in the host", Duration::from_secs(10), || {
        let name = std::fs::read_to_string(&comm).unwrap_or_default();
        Ok(match name.trim() {
            "sleep" => Seen::Done(()),
            name => Seen::NotYet(name.to_owned()),
        })
    })?;
    let dir = tempfile::tempdir().map_err(TestkitError::file("making", "a directory"))?;
    up::down(name, dir.path())?;
    let ended = left.try_wait().ok().flatten();
    expect(ended.is_some(), || {
        "a process in a removed host still runs".into()
    })?;
    expect(!net::is_there(name)?, || "hosts are left".into())?;
    drop(links);
    passed()
}

fn cluster() -> Result<Outcome> {
    let name = "tcluster";
    let dir = tempfile::tempdir().map_err(TestkitError::file("making", "a directory"))?;
    up::down(name, dir.path())?;
    let mut said = Vec::new();
    let testbed = Testbed::up(described(name, HAYLOFT), dir.path(), false, &mut |what| {
        said.push(what.to_owned());
    })?;
    expect(said.len() > 2, || "no progress was shown".into())?;
    let twice = Testbed::up(described(name, HAYLOFT), dir.path(), false, &mut |_| {});
    let twice = twice.expect_err("it is there").to_string();
    expect(twice.contains("there already"), || twice.clone())?;
    let outcome = workload::run(&testbed, &mut |_| {})?;
    expect(outcome.phases.len() == 2, || {
        format!("{} phases", outcome.phases.len())
    })?;
    for phase in &outcome.phases {
        // One client behind one link of 10 MB/s: nothing can be faster.
        expect(phase.mbs > 1.0 && phase.mbs < 11.5, || format!("{phase:?}"))?;
    }
    expect(
        outcome
            .samples
            .iter()
            .any(|s| s.disks.iter().any(|d| d.writers > 0)),
        || "no replica was seen being written".into(),
    )?;
    expect(
        outcome
            .samples
            .iter()
            .any(|s| s.links_mbs.iter().any(|mbs| *mbs > 1.0)),
        || "no link was seen in use".into(),
    )?;
    let out = dir.path().join("report");
    report::write(testbed.described(), &outcome, "a test", &out)?;
    for file in ["README.md", "testbed.toml", "run.json", "disks.svg"] {
        expect(
            out.join(file).metadata().is_ok_and(|m| m.len() > 100),
            || format!("no {file}"),
        )?;
    }
    let pids: Vec<u32> = testbed.nodes().iter().map(up::RunningNode::pid).collect();
    drop(testbed);
    for pid in pids {
        let path = format!("/proc/{pid}");
        expect(!std::path::Path::new(&path).exists(), || {
            format!("{path} is left")
        })?;
    }
    expect(!net::is_there(name)?, || "hosts are left".into())?;
    passed()
}

/// Two hosts with a node and a NodeManager each, one replica: maps go where it is.
fn yarn() -> Result<Outcome> {
    let name = "tyarn";
    let dir = tempfile::tempdir().map_err(TestkitError::file("making", "a directory"))?;
    up::down(name, dir.path())?;
    let testbed = Testbed::up(described(name, HAYLOFT), dir.path(), false, &mut |_| {})?;
    let client = testbed.client("c1")?;
    let unknown = testbed.yarn(&["s3".into()], 3).expect_err("no such host");
    expect(unknown.to_string().contains("no host s3"), || {
        unknown.to_string()
    })?;
    let yarn = testbed.yarn(&["s1".into(), "s2".into()], 3)?;
    let run = |class: &str, arguments: &[&str]| {
        let mut request = yarn.job_conf();
        for (key, value) in [
            ("dfs.replication", 1),
            ("mapreduce.randomwriter.bytespermap", 2 << 20),
            ("mapreduce.randomwriter.totalbytes", 8 << 20),
        ] {
            request["conf"][key] = value.into();
        }
        client.tool_with(class, arguments, request)?.ok()
    };
    run(class::RANDOM_WRITER, &["/in"])?;
    run(class::SORT, &["-r", "2", "/in", "/out"])?;
    let jobs = yarn.finished(&client)?;
    expect(jobs.len() == 2, || format!("{jobs:?}"))?;
    let [local, all] = ["DATA_LOCAL_MAPS", "TOTAL_LAUNCHED_MAPS"].map(|of| jobs[1].counter(of));
    expect(all == 4 && local >= 2, || {
        format!("{local} of {all} beside their data")
    })?;
    expect(jobs[1].counter("REDUCE_SHUFFLE_BYTES") > 8 << 20, || {
        format!("{:?}", jobs[1])
    })?;
    // The testbed first: its hosts end what YARN has there.
    drop((client, testbed));
    expect(!net::is_there(name)?, || "hosts are left".into())?;
    drop(yarn);
    passed()
}

/// A disk that is mapped from another host carries a node, and leaves nothing behind.
fn mapped() -> Result<Outcome> {
    if let Some(what) = missing(true).or_else(missing_for_mapping) {
        return Ok(Outcome::Skipped(format!("this machine lacks {what}")));
    }
    let name = "tmapped";
    let disk = r#"
        [[rack.host.node]]
        [[rack.host.node.disk]]
        modelled = true
        on = "c1"
        size_mib = 512
    "#;
    let mut wanted = described(name, "");
    let with_disk = described(name, disk);
    wanted.racks[0].hosts[0] = with_disk.racks[0].hosts[0].clone();
    wanted.network.link_mbit = 400;
    // Through the page cache, as nodes write to disks that rotate, it would not be touched yet.
    wanted.sync_on_close = true;
    let dir = tempfile::tempdir().map_err(TestkitError::file("making", "a directory"))?;
    up::down(name, dir.path())?;
    let testbed = Testbed::up(wanted, dir.path(), false, &mut |_| {})?;
    let disk = &testbed.nodes()[0].disks[0];
    let device = disk.device.clone().unwrap_or_default();
    expect(device.starts_with("loop"), || format!("device {device:?}"))?;
    let outcome = workload::run(&testbed, &mut |_| {})?;
    for phase in &outcome.phases {
        expect(phase.bytes == 16 << 20, || format!("{phase:?}"))?;
        let seen = phase.model.first().cloned().unwrap_or_default();
        expect(seen.utilisation > 0.0, || {
            format!("disk untouched: {phase:?}")
        })?;
    }
    drop(testbed);
    let backing = std::fs::read_to_string(format!("/sys/block/{device}/loop/backing_file"));
    let backing = backing.unwrap_or_default();
    let left = dir.path().display().to_string();
    expect(!backing.contains(&left), || format!("{backing} is left"))?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    expect(!mounts.contains(&left), || format!("left: {mounts}"))?;
    passed()
}

/// What a NameNode says when the plug-in is configured wrongly, and that it ends.
fn wrong_policy() -> Result<Outcome> {
    let name = "tpolicy";
    let dir = tempfile::tempdir().map_err(TestkitError::file("making", "a directory"))?;
    for (mistakes, sentence) in [
        (
            &[("hayloft.placement.layout", "stripes")][..],
            "hayloft.placement.layout is 'stripes': use split, round-robin, hybrid or random.",
        ),
        (
            &[("hayloft.topology.file", "/no/such")],
            "Cannot read the file /no/such of hayloft.topology.file: it does not exist.",
        ),
        (
            &[
                ("hayloft.placement.domains", "host"),
                ("hayloft.placement.domains.file", "/x"),
            ],
            "hayloft.placement.domains.file is set, but hayloft.placement.domains is host, which \
                does not use it: \
             set hayloft.placement.domains=file or remove the path.",
        ),
    ] {
        up::down(name, dir.path())?;
        let mut wanted = described(name, "");
        wanted.namenode.placement = "split".into();
        for (key, value) in mistakes {
            wanted.conf.insert((*key).into(), (*value).into());
        }
        let said = match Testbed::up(wanted, dir.path(), false, &mut |_| {}) {
            Ok(_) => {
                return Err(TestkitError::Expectation(format!(
                    "it runs with {mistakes:?}"
                )));
            }
            Err(error) => error.to_string(),
        };
        // The last of its log is the reason with which it ends.
        let last = said.lines().rfind(|l| l.contains("Exiting with status 1"));
        expect(last.is_some_and(|l| l.contains(sentence)), || said.clone())?;
    }
    passed()
}

fn mistake() -> Result<Outcome> {
    let text = described("tmistake", "")
        .to_toml()
        .replace("link_mbit = 80", "link_mbit = 0");
    let said = Description::parse(&text)
        .expect_err("a link without a rate")
        .to_string();
    expect(said.contains("link_mbit"), || said.clone())?;
    passed()
}
