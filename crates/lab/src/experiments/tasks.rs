//! What the compute profile brings to a grep where storage has hosts of its own: Figure 4.1 of the
//! thesis, with the settings that `hayloft profile compute` prints for today's MapReduce.
//!
//! [`settings`] asks for the profile and has the rows, [`hay`] is the text and its answer, [`grep`]
//! runs the job.

mod grep;
mod hay;
mod settings;

use hayloft_bench::fair::stock::Stock;
use hayloft_testkit::error::Result;

use self::grep::{CONTAINERS, FILES, GREP, GrepHosts, HOSTS, MAPS_AT_A_TIME, REPLICAS};
use self::settings::{ALL, DEFAULTS, ProfileOutput, ROWS, SettingRow};
use super::testbeds::{CONTAINER_S, scaled, slow_disks};
use crate::runner::options::ExperimentOptions;
use crate::runner::table::{Bar, Shown, WantedRatio, pick};
use crate::runner::{Experiment, OURS, Run};

/// The experiment.
pub const TASKS: Experiment = Experiment {
    name: "tasks",
    question: "what the compute profile brings to a grep on separate hosts",
    paper: "the thesis' Figure 4.1",
    options: || ExperimentOptions {
        rounds: 5,
        disk_mbs: DISK_MBS,
        ..slow_disks()
    },
    about,
    measure: |run, _| carry_out(run),
    shown: Shown {
        title: "Task settings",
        tables: include_str!("tables/tasks.txt"),
        wants,
        paper: "Its search on Hadoop of 2010 was faster by 11 % with a heartbeat of 0.3 s instead \
                of 3, by 27 % with a JVM for several tasks, by 37 % with tasks of 5 GB (disk 68 % \
                busy), and by 46 % with all of them. The disk was busy for 38 % of the time with \
                the fast heartbeat alone, and for 97 % with all.",
        ..Shown::NOTHING
    },
    ..Experiment::OF_RATES
};

/// Sequential rates of its disks, MB/s: reading, writing. A block takes such a disk four seconds,
/// so that two processors can start the tasks that read it.
const DISK_MBS: (u32, u32) = (4, 4);
/// The search takes so many times as long with the defaults as with the whole profile, at least.
const FASTER: f64 = 1.3;
/// The disks are busy for this share of the time in which maps run, at least.
const BUSY: f64 = 0.9;

fn wants() -> Vec<WantedRatio> {
    let figure = |row, name| pick("", row, OURS, GREP, name);
    vec![
        WantedRatio {
            text: "seconds of the search with the defaults to those with all (a result where the \
                   next line is met)"
                .into(),
            of: figure(DEFAULTS, "search_s"),
            over: figure(ALL, "search_s"),
            bar: Bar::Least(FASTER),
        },
        WantedRatio {
            text: "share of the time of maps in which disks were busy, with all".into(),
            of: figure(ALL, "busy_s"),
            over: figure(ALL, "maps_s"),
            bar: Bar::Least(BUSY),
        },
    ]
}

fn about(options: &ExperimentOptions) -> String {
    let (read, _) = options.disk_mbs;
    let disks = u32::try_from(HOSTS).unwrap_or(u32::MAX);
    let tasks = (options.mib * disks).div_ceil(options.block_mib);
    format!(
        "{HOSTS} racks, each with a host for tasks and one for storage, which has a modelled \
         hard disk (not a real one) of {read} MB/s. Links have {} Mbit/s: disks are slower. Stock \
         YARN runs the stock grep over {} MiB of text for each disk: {FILES} files, {REPLICAS} \
         replica, blocks of {} MiB. A NodeManager has {CONTAINERS} containers at a time, so there \
         are {MAPS_AT_A_TIME} for maps beside ApplicationMaster and reduce, and one more until \
         the reduce starts. The grep is that of hadoop-mapreduce-examples 3.4.2. All processes of \
         YARN keep Hadoop's default intervals but for what a row sets, and for \
         `yarn.nm.liveness-monitor.expiry-interval-ms`, which is 20,000 in every row.\n\nThe row \
         `defaults` sets nothing of the profile. The others set what the program under test prints \
         at that moment, in the files that it names. Large tasks ask for \
         `CombineTextInputFormat`, as the profile says. As it says too, their `split.maxsize` is \
         no larger than the input for each map that runs at a time. Each turn starts storage nodes \
         and YARN anew. A grep over a block of each disk runs before the one that counts, which \
         begins with dropped caches. Hayloft wrote what all read. Every answer is compared with \
         the known one: another answer ends the experiment.\n\nNot as on real hosts: tasks are \
         small JVMs without the optimising compiler, and none runs twice (no speculation). {} At \
         the defaults {tasks} tasks of about {CONTAINER_S} processor seconds take {:.0} s of two \
         processors, and their bytes {:.0} s of the disks.",
        options.link_mbit,
        options.mib,
        options.block_mib,
        scaled(options, HOSTS),
        f64::from(tasks) * CONTAINER_S / 2.0,
        f64::from(options.mib) * f64::from(1 << 20) / 1e6 / f64::from(read.max(1)),
    )
}

/// Who takes turns: our nodes in every row, stock ones where nothing or everything is set. Row,
/// peer, and what a testbed calls its kind.
fn turns() -> Vec<(&'static SettingRow, &'static str, &'static str)> {
    let ours = ROWS.iter().map(|row| (row, OURS, "hayloft"));
    let both = ROWS
        .iter()
        .filter(|row| [DEFAULTS, ALL].contains(&row.name));
    let stock = both.map(|row| (row, Stock::Sync.name(), Stock::Sync.kind()));
    ours.chain(stock).collect()
}

fn carry_out(run: &mut Run<'_>) -> Result<()> {
    let profile = ProfileOutput::ask()?;
    let mut hosts = GrepHosts::start(run.options, &run.work.join("hosts"), run.tell)?;
    for row in &ROWS {
        let set = row.said(&profile, hosts.bytes_a_map())?;
        run.add_condition(&format!("set by `{}`", row.name), set);
    }
    run.add_condition("names of the profile", profile.names_of.clone());
    let turns = turns();
    let peers: Vec<_> = turns
        .iter()
        .map(|(row, peer, _)| (row.name, *peer))
        .collect();
    run.rounds("", &peers, &mut |turn, at| {
        let (row, _, kind) = turns[at];
        hosts.turn(turn, kind, (row, &profile))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::page::ExperimentPage;
    use crate::runner::record::{PeerFigures, PeerSample, Record};

    #[test]
    fn the_page_compares_with_the_defaults_and_judges_both_bars() {
        let of = |row, search_s: f64, busy: f64| {
            let figures = PeerFigures::of([
                ("search_s", search_s),
                ("seconds", search_s + 40.0),
                ("maps_s", 100.0),
                ("busy_s", 100.0 * busy),
                ("maps_busy", busy),
                ("cpu", 0.4),
                ("waited", 0.01),
                // Over the whole grep, most of whose time no map runs in.
                ("disk_busy", busy / 2.0),
            ]);
            PeerSample::first(("", row, OURS, GREP), figures)
        };
        let samples = vec![of(DEFAULTS, 150.0, 0.4), of(ALL, 100.0, 0.95)];
        let record = Record::signed(samples);
        let text = ExperimentPage::new(&TASKS.shown, &record).body(2);
        for wanted in [
            "| all | Hayloft | 100",
            "67 %",
            "1.50 (asked: at least 1.30): met",
            "0.95 (asked: at least 0.90): met",
            "| none named |",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
    }

    #[test]
    fn stock_nodes_are_beside_ours_where_nothing_and_everything_is_set() {
        let turns = turns();
        for row in &ROWS {
            let peers = turns.iter().filter(|(of, ..)| of.name == row.name).count();
            let both = [DEFAULTS, ALL].contains(&row.name);
            assert_eq!(peers, 1 + usize::from(both), "{}", row.name);
        }
    }

    #[test]
    fn what_limits_is_said_by_its_arithmetic() {
        let said = about(&(TASKS.options)());
        let jobs = "24 tasks of about 3 processor seconds take 36 s of two processors, and their \
                    bytes 50 s of the disks";
        assert!(said.contains(jobs), "{said}");
    }
}
