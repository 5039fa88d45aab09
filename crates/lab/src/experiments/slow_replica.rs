//! A replica that is slow to read: the link or all disks of one node among a dozen, or one disk in
//! a node. Does the NameNode hear of it, does it send readers elsewhere, and what do they wait for
//! then?
//!
//! [`hosts`] describes the cluster, [`reads`] reads and counts. [`lists`] asks whom the NameNode
//! calls slow, while [`load`] has nodes know each other. [`turn`] makes something slow, and
//! measures before and after.

mod hosts;
mod lists;
mod load;
mod reads;
mod turn;

use hayloft_bench::fair::stock::Stock;

use self::hosts::{LINK_LEAST, NODES, SLOW_DISKS, SLOWER};
use self::reads::{READ_BYTES, READERS};
use self::turn::{DISKS, DISKS_ON, HEALTHY, LINK, LINK_ON, ONE_DISK};
use super::testbeds::{scaled, slow_disks};
use crate::runner::options::ExperimentOptions;
use crate::runner::table::{Bar, Shown, WantedRatio, pick};
use crate::runner::{Experiment, OURS, Run};
use hayloft_testkit::error::{Result, TestkitError};

/// The experiment.
pub const SLOW_REPLICA: Experiment = Experiment {
    name: "slow-replica",
    question: "a node or a disk becomes slow: who tells, and what readers wait for",
    paper: "the thesis' Section 5.6 names the question",
    parts: &[LINK, DISKS, ONE_DISK],
    rates: false,
    options: || ExperimentOptions {
        mib: 96,
        disk_mbs: (20, 20),
        ..slow_disks()
    },
    about,
    measure: carry_out,
    shown: Shown {
        title: "A slow replica",
        tables: include_str!("tables/slow_replica.txt"),
        wants,
        ..Shown::NOTHING
    },
    ..Experiment::OF_RATES
};

/// Readers of a cluster with a slow node wait for at most so many times as long as of a healthy
/// one, 99 in 100 times.
const SLOWER_MOST: f64 = 1.3;

fn wants() -> Vec<WantedRatio> {
    let want = |(part, row): (&str, &str)| WantedRatio {
        text: format!("p99 with {row}, over Hayloft, to a healthy cluster's"),
        of: pick(part, row, OURS, "read", "p99_ms"),
        over: pick(part, HEALTHY, OURS, "read", "p99_ms"),
        bar: Bar::Most(SLOWER_MOST),
    };
    [(LINK, LINK_ON), (DISKS, DISKS_ON)].map(want).into()
}

fn about(options: &ExperimentOptions) -> String {
    format!(
        "{NODES} hosts in one rack, each with a node on a modelled hard disk (not a real one) of \
         {} MB/s; the one that becomes slow has {SLOW_DISKS} of them, in every row. Links of {} \
         Mbit/s, stock NameNode and stock clients in hosts of their own, with links of {} Mbit/s. \
         {READERS} files of {} MiB in blocks of 1 MiB, three replicas. {READERS} readers read {} \
         KiB at random places, each of its file, with dropped caches and without read-ahead. \
         What becomes slow while the cluster runs is {SLOWER} times slower from then on: a link's \
         rate, or rates, seeks and turns of disks. Then {} nodes send blocks of {} MiB to \
         each other node in turn, until the NameNode lists the slow one. Avoidance is \
         `dfs.namenode.avoid.read.slow.datanode`, switched while the NameNode runs. Nodes name \
         slow peers from ten known ones on, as Hadoop does by default, but from {} packets on \
         instead of 1000. They search each {} s, and the NameNode asks each second: by default \
         both wait for half an hour. A node names slow disks where it has {SLOW_DISKS}. \
         {} A stock node averages its peers over windows of five minutes, which nothing sets: \
         before the first one ends it names none. {}",
        options.disk_mbs.0,
        options.link_mbit,
        hosts::CLIENT_MBIT,
        reads::file_mib(options),
        READ_BYTES >> 10,
        load::SENDERS,
        load::BLOCK >> 20,
        hosts::SAMPLES,
        hosts::SEARCH_S,
        Stock::EXPLAINED,
        scaled(options, NODES + SLOW_DISKS - 1),
    )
}

/// Who takes turns, with what a testbed calls its kind. Stock nodes are left out of a look: they
/// name none in the time that it has.
fn peers(options: &ExperimentOptions) -> Vec<(&'static str, &'static str)> {
    let stock = [(Stock::Sync.name(), Stock::Sync.kind())];
    let stock = stock.into_iter().filter(|_| !options.first_counts);
    stock.chain([(OURS, "hayloft")]).collect()
}

fn carry_out(run: &mut Run<'_>, part: &str) -> Result<()> {
    if run.options.link_mbit < LINK_LEAST {
        return Err(TestkitError::Expectation(format!(
            "a slow link has a {SLOWER}th of --link-mbit {}: give {LINK_LEAST} or more",
            run.options.link_mbit
        )));
    }
    let peers = peers(run.options);
    if peers.len() == 1 {
        let why = "stock nodes: they average their peers over five minutes";
        run.leave_out(why.into());
    }
    let named: Vec<_> = peers.iter().map(|(peer, _)| ("", *peer)).collect();
    run.rounds(part, &named, &mut |turn, at| {
        turn::measure(turn, part, peers[at].1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::page::ExperimentPage;
    use crate::runner::record::{PeerFigures, PeerSample, Record};

    fn page(on_ms: f64) -> String {
        let of = |row, p99_ms: f64, first_slow: f64| {
            let figures = [
                ("p50_ms", 20.0),
                ("p99_ms", p99_ms),
                ("first_slow", first_slow),
            ];
            PeerSample::first((LINK, row, OURS, "read"), PeerFigures::of(figures))
        };
        let listed = PeerFigures::of([("listed_s", 4.5), ("others", 0.0)]);
        let samples = vec![
            of(HEALTHY, 80.0, 0.08),
            of(turn::LINK_OFF, 400.0, 0.08),
            of(LINK_ON, on_ms, 0.0),
            PeerSample::first((LINK, LINK_ON, OURS, "list"), listed),
        ];
        ExperimentPage::new(&SLOW_REPLICA.shown, &Record::signed(samples)).body(2)
    }

    #[test]
    fn the_bar_is_held_against_the_healthy_cluster() {
        let good = page(104.0);
        let row = "| slow link, avoidance on | Hayloft | 20.0 | 104 | 130 % | 0 % | 4.5 | 0 |";
        assert!(good.contains(row), "{good}");
        let met = "p99 with slow link, avoidance on, over Hayloft, to a healthy cluster's: 1.30 \
                   (asked: at most 1.30): met";
        assert!(good.contains(met), "{good}");
        assert!(page(105.0).contains("NOT met"));
    }

    #[test]
    fn stock_nodes_take_part_where_there_is_time_for_them() {
        let mut options = (SLOW_REPLICA.options)();
        assert_eq!(peers(&options).len(), 2);
        options.first_counts = true;
        assert_eq!(peers(&options), [(OURS, "hayloft")]);
    }
}
