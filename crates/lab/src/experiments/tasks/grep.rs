//! Hosts with the text on them, and a turn: YARN as a row sets it, and a grep that is watched.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::hay;
use super::settings::{ProfileOutput, SettingRow};
use crate::describe::{Description, HostSpec, Rack};
use crate::experiments::testbeds::{one_rack, storage_host};
use crate::runner::PeerTurn;
use crate::runner::options::ExperimentOptions;
use crate::runner::record::PeerFigures;
use crate::sample::{Sample, Watch};
use crate::up::Testbed;
use crate::workload::{self, Moved, PHASE_LIMIT};
use hayloft_testkit::driver::{Driver, ToolRun};
use hayloft_testkit::error::{Result, TestkitError, expect};
use hayloft_testkit::hadoop::class;
use hayloft_testkit::hadoop_conf::Conf;
use hayloft_testkit::yarn::{FinishedJob, Yarn};

/// What is done, in the raw data.
pub(super) const GREP: &str = "grep";
/// Racks, each with a host for storage and one for tasks.
pub(super) const HOSTS: usize = 2;
/// Containers of a NodeManager at a time.
pub(super) const CONTAINERS: u32 = 2;
/// Those that are left for maps beside the ApplicationMaster and the reduce: one for each disk.
pub(super) const MAPS_AT_A_TIME: u32 = 2;
/// Files on each disk.
pub(super) const FILES: u32 = 2;
/// Every block is on one disk: that of its rack.
pub(super) const REPLICAS: u16 = 1;
/// What is searched, and what is searched before it counts.
const INPUT: &str = "/tasks/in";
const SMALL_INPUT: &str = "/tasks/small";
const FOUND: &str = "/tasks/found";
/// Where YARN has files in HDFS.
const OF_YARN: &str = "/yarn";

fn described(options: &ExperimentOptions) -> Description {
    let mut options = ExperimentOptions {
        kind: "hayloft".into(),
        ..options.clone()
    };
    let block = u64::from(options.block_mib) << 20;
    for (key, value) in [
        ("dfs.replication", u64::from(REPLICAS)),
        ("dfs.blocksize", block),
    ] {
        // A property that was given counts.
        let unless_given = options.conf.entry(key.into());
        unless_given.or_insert_with(|| value.to_string());
    }
    let rack = |at| Rack {
        name: format!("r{at}"),
        hosts: vec![
            storage_host(at, false, &options),
            HostSpec::client(format!("w{at}")),
        ],
    };
    Description {
        racks: (0..HOSTS).map(rack).collect(),
        ..one_rack(&options, "stock", Vec::new(), "none")
    }
}

/// A testbed with the text on its disks, whose nodes are started anew in each turn.
pub(super) struct GrepHosts {
    // Dropped first to last: clients before their hosts.
    clients: Vec<Driver>,
    testbed: Testbed,
    /// MiB of a file.
    file_mib: u32,
    block_mib: u32,
}

impl GrepHosts {
    /// Brings it up in `dir`, and has a client in each rack write files there.
    ///
    /// # Errors
    /// When something does not come up, or cannot be written.
    pub fn start(
        options: &ExperimentOptions,
        dir: &Path,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Self> {
        let described = described(options);
        crate::up::down(&described.name, dir)?;
        let testbed = Testbed::up(described, dir, false, tell)?;
        let hosts = Self {
            clients: workload::start_clients(&testbed, tell)?,
            testbed,
            file_mib: (options.mib / FILES).max(1),
            block_mib: options.block_mib,
        };
        tell("writing the text");
        hosts.write(INPUT, hosts.file_mib, FILES)?;
        hosts.write(SMALL_INPUT, hosts.block_mib, 1)?;
        Ok(hosts)
    }

    /// Files of so many MiB, `files` in each rack: the NameNode has them where their client is.
    fn write(&self, below: &str, mib: u32, files: u32) -> Result<()> {
        let path = self.testbed.dir().join("hay");
        std::fs::write(&path, hay::text(mib)).map_err(TestkitError::file("writing", &path))?;
        let local = path.display().to_string();
        self.clients[0].fs(&["-mkdir", "-p", below])?;
        for file in 0..files {
            let put = |(at, client): (usize, &Driver)| {
                let to = format!("{below}/{at}-{file}");
                client.begin_tool(class::FS_SHELL, &["-put", &local, &to], json!({}))
            };
            let begun: Vec<_> = self.clients.iter().enumerate().map(put).collect();
            for pending in begun {
                ToolRun::from(pending?.wait_at_most(PHASE_LIMIT)?).ok()?;
            }
        }
        std::fs::remove_file(&path).map_err(TestkitError::file("removing", &path))
    }

    /// A row's turn: nodes of `kind` start anew, also after ones of that kind, so that no row has
    /// warmer ones. YARN starts as the row sets it, and greps once before it counts.
    ///
    /// # Errors
    /// When something does not come up, a job fails, or its answer is another than the known one.
    pub fn turn(
        &mut self,
        turn: &mut PeerTurn<'_>,
        kind: &str,
        (row, profile): (&SettingRow, &ProfileOutput),
    ) -> Result<()> {
        turn.tell(&format!("nodes of the kind {kind}"));
        self.testbed.exchange_nodes(kind)?;
        let conf = row.conf(profile, self.bytes_a_map())?;
        // Histories of earlier turns would be read again and again.
        self.remove(OF_YARN)?;
        turn.tell("starting YARN");
        let yarn = self.start_yarn(&conf.daemons)?;
        let request = request(&yarn, &conf.jobs);
        if !turn.options.first_counts {
            turn.tell("a small grep before it counts");
            self.grep(&yarn, SMALL_INPUT, request.clone())?;
            self.check_answer(self.block_mib, 1)?;
        }
        if !turn.counts {
            return Ok(());
        }
        turn.tell("the grep");
        self.measure(turn, &yarn, request)
    }

    fn measure(&self, turn: &mut PeerTurn<'_>, yarn: &Yarn, request: Value) -> Result<()> {
        let before = yarn.finished(&self.clients[0])?.len();
        workload::empty_page_cache()?;
        let watch = Watch::begin(&self.testbed)?;
        let watch_began_s = seconds_now() - watch.now();
        let phase = workload::observe(&self.testbed, (GREP, turn.round), &watch, || {
            Ok(vec![Moved {
                bytes: self.bytes(),
                nanos: self.grep(yarn, INPUT, request)?.saturating_mul(1_000_000),
            }])
        })?;
        let outcome = workload::outcome(watch, vec![phase]);
        self.check_answer(self.file_mib, FILES)?;
        let ended = yarn.finished(&self.clients[0])?.split_off(before);
        turn.give_outcome(self.testbed.described(), &outcome)?;
        turn.add(GREP, figures(&ended, watch_began_s, &outcome.samples)?);
        Ok(())
    }

    /// Bytes that are searched.
    fn bytes(&self) -> u64 {
        (u64::from(self.file_mib * FILES) << 20) * HOSTS as u64
    }

    /// Bytes that are searched for each map that runs at a time.
    pub fn bytes_a_map(&self) -> u64 {
        self.bytes() / u64::from(MAPS_AT_A_TIME)
    }

    fn start_yarn(&self, more: &Conf) -> Result<Yarn> {
        let hosts: Vec<String> = (0..HOSTS).map(|at| format!("w{at}")).collect();
        let mut site = self.testbed.yarn_site(&hosts, CONTAINERS)?;
        site.stock_intervals = true;
        let mut conf = self.testbed.conf();
        conf.overlay(more);
        Yarn::start(&self.testbed.hadoop, &conf, site)
    }

    /// Searches, and sorts what was found; milliseconds.
    fn grep(&self, yarn: &Yarn, input: &str, request: Value) -> Result<u64> {
        let arguments = [input, FOUND, hay::EXPRESSION];
        let pending = self.clients[0].begin_tool(class::GREP, &arguments, request)?;
        let run = ToolRun::from(pending.wait_at_most(PHASE_LIMIT)?);
        expect(run.code == 0, || {
            let dir = yarn.dir().display();
            format!("{run:?}; what its containers said is below {dir}")
        })?;
        Ok(run.millis)
    }

    /// Compares every byte of what a grep over such files found, and removes it.
    fn check_answer(&self, mib: u32, files: u32) -> Result<()> {
        let found = self.clients[0].fs(&["-cat", &format!("{FOUND}/part-r-*")])?;
        let wanted = hay::answer(mib, u64::from(files) * HOSTS as u64);
        expect(found == wanted, || {
            format!("the grep's answer is {found:?}, not {wanted:?}")
        })?;
        self.remove(FOUND)
    }

    fn remove(&self, path: &str) -> Result<()> {
        let rm = ["-rm", "-r", "-f", "-skipTrash", path];
        self.clients[0].fs(&rm).map(drop)
    }
}

/// What a job is asked for with, under these settings.
fn request(yarn: &Yarn, more: &Conf) -> Value {
    let mut request = yarn.job_conf();
    for (key, value) in more.iter() {
        request["conf"][key] = json!(value);
    }
    request
}

fn seconds_now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// What the two jobs of a grep say, and how busy disks were while the first one's maps ran; the
/// watch of these samples began so many seconds after 1970.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn figures(ended: &[FinishedJob], watch_began_s: f64, samples: &[Sample]) -> Result<PeerFigures> {
    let [search, sort] = ended else {
        let text = format!("a grep is a search and a sort, not {ended:?}");
        return Err(TestkitError::Expectation(text));
    };
    expect(search.succeeded && sort.succeeded, || format!("{ended:?}"))?;
    let of_watch = |millis: u64| millis as f64 / 1e3 - watch_began_s;
    let (from, to) = search.mapped.ok_or_else(|| {
        TestkitError::Expectation(format!("no map of the search ended: {}", search.id))
    })?;
    let (from, to) = (of_watch(from), of_watch(to));
    let busy = busy_between(samples, from, to);
    let uber = "NUM_UBER_SUBMAPS";
    Ok(PeerFigures::of([
        ("search_s", search.millis as f64 / 1e3),
        ("maps_s", to - from),
        ("maps", search.counter("TOTAL_LAUNCHED_MAPS") as f64),
        ("maps_rack", search.counter("RACK_LOCAL_MAPS") as f64),
        (
            "maps_uber",
            (search.counter(uber) + sort.counter(uber)) as f64,
        ),
    ])
    .with_some("maps_busy", busy)
    .with_some("busy_s", busy.map(|busy| busy * (to - from))))
}

/// Mean share of the time in which a disk had a request, over all disks; `None` without samples.
#[expect(clippy::cast_precision_loss, reason = "a few thousand samples")]
fn busy_between(samples: &[Sample], from: f64, to: f64) -> Option<f64> {
    let seen = samples.iter().filter(|one| one.at > from && one.at <= to);
    let busy: Vec<f64> = seen
        .flat_map(|sample| sample.disks.iter().map(|disk| disk.busy))
        .collect();
    (!busy.is_empty()).then(|| busy.iter().sum::<f64>() / busy.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::testbeds::{slow_disks, tests::is_right};
    use crate::sample::DiskSample;

    #[test]
    fn every_rack_has_a_disk_and_no_task_runs_beside_it() {
        let described = described(&slow_disks());
        is_right(&described);
        for rack in &described.racks {
            let disks =
                |host: &HostSpec| -> usize { host.nodes.iter().map(|node| node.disks.len()).sum() };
            let of_hosts: Vec<(usize, bool)> = rack
                .hosts
                .iter()
                .map(|host| (disks(host), host.client))
                .collect();
            assert_eq!(of_hosts, [(1, false), (0, true)], "{}", rack.name);
        }
        assert_eq!(described.clients(), HOSTS);
        let containers = CONTAINERS * u32::try_from(HOSTS).unwrap();
        assert_eq!(containers, MAPS_AT_A_TIME + 2);
    }

    #[test]
    fn given_properties_are_over_its_own() {
        let mut options = slow_disks();
        options.conf.insert("dfs.replication".into(), "2".into());
        let conf = described(&options).conf;
        let block = u64::from(options.block_mib) << 20;
        assert_eq!(conf["dfs.replication"], "2");
        assert_eq!(conf["dfs.blocksize"], block.to_string());
    }

    fn job(name: &str, counters: [(&str, u64); 2], mapped: Option<(u64, u64)>) -> FinishedJob {
        FinishedJob {
            id: format!("job_1_{name}"),
            name: name.into(),
            succeeded: true,
            millis: 20_000,
            mapped,
            counters: counters.map(|(name, n)| (name.to_owned(), n)).into(),
        }
    }

    #[test]
    fn disks_are_looked_at_while_maps_of_the_search_ran() {
        let sample = |at, busy| Sample {
            at,
            disks: [busy, busy / 2.0]
                .map(|busy| DiskSample {
                    busy,
                    ..DiskSample::default()
                })
                .to_vec(),
            ..Sample::default()
        };
        // The watch began 1000 s after 1970; maps ran from the fifth to the fifteenth second.
        let samples = [(4.9, 0.1), (5.1, 0.8), (14.9, 0.8), (15.1, 0.1)];
        let samples = samples.map(|(at, busy)| sample(at, busy));
        let counters = [("TOTAL_LAUNCHED_MAPS", 7), ("RACK_LOCAL_MAPS", 6)];
        let search = job("search", counters, Some((1_005_000, 1_015_000)));
        let sort = job("sort", [("NUM_UBER_SUBMAPS", 1), ("OTHER", 1)], None);
        let both = [search.clone(), sort];
        let found = figures(&both, 1000.0, &samples).expect("two jobs");
        for (name, wanted) in [
            ("search_s", 20.0),
            ("maps", 7.0),
            ("maps_rack", 6.0),
            ("maps_uber", 1.0),
            ("maps_s", 10.0),
            ("maps_busy", 0.6),
            ("busy_s", 6.0),
        ] {
            let figure = found.get(name).expect(name);
            assert!((figure - wanted).abs() < 1e-9, "{name}: {figure}");
        }
        let error = figures(&[search], 1000.0, &samples).expect_err("no sort");
        assert!(error.to_string().contains("a search and a sort"), "{error}");
    }
}
