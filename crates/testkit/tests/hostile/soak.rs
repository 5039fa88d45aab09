//! Writers, readers, appends and deletes for hours, while nothing of a node grows. Only
//! `scripts/soak` has the case: it takes the minutes of `HAYLOFT_SOAK_MINUTES`.

use hayloft_testkit::error::Result;
use hayloft_testkit::node::Kind;
use hayloft_testkit::process_usage::{self, grows};
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, TestkitError, http, ports};
use serde_json::json;
use std::collections::VecDeque;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const NODES: usize = 3;
/// Block size of the clients, bytes.
const BLOCK: u64 = 1 << 20;
/// Writers and readers at once.
const WRITERS: u64 = 3;
const READERS: usize = 4;
/// Files that are there at a time.
const FILES: usize = 40;
/// Between two rounds of clients.
const PAUSE: Duration = Duration::from_millis(200);
/// What is measured of a node, and by how much it may differ without a cause.
const MEASURED: [(&str, u64); 4] = [
    ("KiB of memory", 16 << 10),
    ("descriptors", 16),
    ("threads", 16),
    ("connections and streams", 16),
];
/// Samples of a short run; a long one has one a minute.
const SAMPLES_MIN: u32 = 40;

/// The case, where a time is given.
pub fn cases(suite: &mut Suite) -> Result<()> {
    let Ok(minutes) = std::env::var("HAYLOFT_SOAK_MINUTES") else {
        return Ok(());
    };
    let minutes: u64 = minutes
        .parse()
        .map_err(|error| TestkitError::Expectation(format!("HAYLOFT_SOAK_MINUTES: {error}")))?;
    let mut on = suite.group(Soak::start, |lab, failed| lab.cluster.conclude(failed));
    on.case("soak_in_which_nothing_grows", move |lab| {
        lab.run(seconds(60 * minutes))
    });
    Ok(())
}

struct Soak {
    cluster: Cluster,
    fs: Driver,
    /// Process and web port of each node.
    nodes: Vec<(u32, SocketAddr)>,
    /// Seed, which is in the name, and length of the files that are there, the oldest first.
    files: VecDeque<(u64, u64)>,
    /// Files so far.
    made: u64,
}

fn path(seed: u64) -> String {
    format!("/soak/{seed}")
}

impl Soak {
    fn start() -> Result<Self> {
        let mut cluster = Cluster::builder("soak")
            .nodes(NODES, Kind::Hayloft)
            .conf("dfs.blocksize", BLOCK)
            .conf("dfs.replication", 3)
            // What comes every six hours comes often enough for a short run.
            .conf("dfs.blockreport.intervalMsec", 300_000)
            .conf("dfs.datanode.directoryscan.interval", 300)
            .start()?;
        let fs = cluster.driver()?;
        let nodes = (0..NODES).map(|node| {
            let node = cluster.node(node);
            Ok((node.process()?.pid(), ports::local(node.http_port())))
        });
        let nodes = nodes.collect::<Result<_>>()?;
        Ok(Self {
            cluster,
            fs,
            nodes,
            files: VecDeque::new(),
            made: 0,
        })
    }

    fn next_seed(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// A round of clients: at once some write files, one flushes what it writes, and others read.
    /// Then one appends, and the oldest files are deleted.
    fn works(&mut self) -> Result<()> {
        let mut calls = Vec::new();
        let made = usize::try_from(self.made).unwrap_or(0);
        for n in 0..READERS.min(self.files.len()) {
            let (seed, bytes) = self.files[(made + n * 11) % self.files.len()];
            let read = json!({"path": path(seed), "seed": seed});
            calls.push((self.fs.begin("read", read)?, "bytes", bytes));
        }
        for n in 0..WRITERS {
            let (seed, bytes) = (self.next_seed(), n * BLOCK + 777);
            let put = json!({"path": path(seed), "bytes": bytes, "seed": seed});
            calls.push((self.fs.begin("put", put)?, "length", bytes));
            self.files.push_back((seed, bytes));
        }
        let flushed = self.next_seed();
        self.fs.create("w", &path(flushed), flushed, json!({}))?;
        let flushes = json!({"handle": "w", "bytes": BLOCK + 777, "chunk": 65_536});
        calls.push((self.fs.begin("loop", flushes)?, "acked", BLOCK + 777));
        for (call, what, bytes) in calls {
            let end = call.wait()?;
            let right = end[what] == bytes && (what != "bytes" || end["mismatch"] == -1);
            expect(right, || format!("want {what} {bytes}: {end}"))?;
        }
        self.fs.handle("close", "w")?;
        self.files.push_back((flushed, BLOCK + 777));
        if let Some((seed, bytes)) = self.files.front_mut() {
            let more = json!({"appendTo": true});
            self.fs.put(&path(*seed), BLOCK / 2, *seed, more)?;
            *bytes += BLOCK / 2;
            self.fs.check(&path(*seed), *bytes, *seed)?;
        }
        while self.files.len() > FILES {
            if let Some((seed, _)) = self.files.pop_front() {
                self.fs.call("delete", json!({"path": path(seed)}))?;
            }
        }
        Ok(())
    }

    /// What [`MEASURED`] names, of a node.
    fn measure((pid, web): (u32, SocketAddr)) -> Result<[u64; 4]> {
        let usage = process_usage::usage(pid)?;
        let prom = http::get(web, "/prom")?;
        let active = prom
            .lines()
            .filter(|line| line.starts_with("hayloft_active{"));
        let active = active.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
        let open = usage.descriptors + usage.pipes;
        Ok([usage.rss_kib, open as u64, usage.threads, active.sum()])
    }

    fn run(&mut self, total: Duration) -> Result<Outcome> {
        let kept = self.cluster.dir().with_file_name("soak.tsv");
        let write = || TestkitError::file("writing", &kept);
        let mut table = std::fs::File::create(&kept).map_err(write())?;
        writeln!(table, "s\tnode\t{}", MEASURED.map(|of| of.0).join("\t")).map_err(write())?;
        let every = (total / SAMPLES_MIN).min(seconds(60));
        let (began, mut due) = (Instant::now(), every);
        let mut samples = vec![Vec::new(); self.nodes.len()];
        while began.elapsed() < total {
            self.works().inspect_err(|_| {
                println!("soak: after {:?}", began.elapsed());
            })?;
            if began.elapsed() >= due {
                due = began.elapsed() + every;
                for (node, of) in self.nodes.iter().enumerate() {
                    let sample = Self::measure(*of)?;
                    let values = sample.map(|value| value.to_string()).join("\t");
                    let at = began.elapsed().as_secs();
                    writeln!(table, "{at}\t{node}\t{values}").map_err(write())?;
                    samples[node].push(sample);
                }
            }
            std::thread::sleep(PAUSE);
        }
        println!("soak: {} files; see {}", self.made, kept.display());
        self.fs.wait_healthy("/", seconds(60))?;
        let mut grown = Vec::new();
        for (node, samples) in samples.iter().enumerate() {
            for (of, (what, floor)) in MEASURED.into_iter().enumerate() {
                let values: Vec<u64> = samples.iter().map(|sample| sample[of]).collect();
                if let Some((before, now)) = grows(&values, floor) {
                    grown.push(format!("node {node}: {what} from {before} to {now}"));
                }
            }
        }
        expect(grown.is_empty(), || {
            let all = grown.join("; ");
            format!("grows from quarter to quarter: {all}: {}", kept.display())
        })?;
        passed()
    }
}
