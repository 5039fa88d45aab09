//! A SuperDataNode: one process of virtual nodes over eight disks behind four links, against eight
//! stock DataNodes with a disk and a link each. The jobs of the paper's Figure 2, how long the
//! disks' requests took (Figures 3 to 5), and workers that are switched off and on; then what one
//! process costs beside eight.

mod beside;
mod jobs;
mod latency;
mod power;

use hayloft_bench::fair::stock::Stock;

use super::testbeds::{DISKS, slow_disks};
use crate::runner::Experiment;
use crate::runner::options::ExperimentOptions;
use crate::runner::table::{Shown, WantedRatio};

/// The experiment.
pub const SUPER: Experiment = Experiment {
    name: "super",
    question: "virtual nodes over eight disks against eight stock DataNodes",
    paper: "the SuperDataNode paper's Figures 2 to 5",
    parts: &[JOBS, BESIDE],
    options: || ExperimentOptions {
        disk_mbs: DISK_MBS,
        link_mbit: LINK_MBIT,
        ..slow_disks()
    },
    about,
    measure: |run, part| match part {
        JOBS => jobs::carry_out(run, part),
        _ => beside::carry_out(run, part),
    },
    shown: Shown {
        title: "A SuperDataNode",
        tables: include_str!("tables/super.txt"),
        wants: wants_of_beside,
        paper: "Its SuperDataNode took this much longer or shorter than nodes with own disks: \
                RandomWriter 92 % slower, Sort 17 % faster, Grep 54 % faster.",
        ..Shown::NOTHING
    },
    ..Experiment::OF_RATES
};

/// The jobs with half of the workers off and on.
const JOBS: &str = "jobs";
/// One process beside eight.
const BESIDE: &str = "beside";
/// What is done when workers are off.
const OFF: &str = "workers off";
/// Sequential rates of its disks, MB/s: reading, writing. Two processors carry no more.
const DISK_MBS: (u32, u32) = (25, 22);
/// Rate of a link, Mbit/s: the four have 40 % of the disks' rate together.
const LINK_MBIT: u32 = 160;

fn wants_of_beside() -> Vec<WantedRatio> {
    beside::wants(BESIDE)
}

fn about(options: &ExperimentOptions) -> String {
    let (read, write) = options.disk_mbs;
    format!(
        "{DISKS} modelled hard disks (not real ones) of {read} MB/s reading and {write} MB/s \
         writing, links of {} Mbit/s, {} replicas in blocks of {} MiB, {} workers. What is closed \
         is on the disk; caches are dropped before each job. The stock DataNodes are in the \
         workers' hosts, a disk and a link each. Hayloft is one process of {} virtual nodes in a \
         host of its own with as many links. {}\n\nStock YARN runs the stock jobs over {} MiB for \
         each worker: a NodeManager in each worker's host with {} containers at a time, the \
         ResourceManager beside the NameNode, Hadoop's default scheduler. What tasks spill is on \
         the machine's own disk. Each turn starts storage and YARN anew and runs all jobs once \
         before they count; every task is a new JVM.",
        options.link_mbit,
        jobs::REPLICAS,
        options.block_mib,
        options.largest.min(DISKS),
        jobs::NAMES.len(),
        Stock::EXPLAINED,
        options.mib,
        jobs::MAPS + 1,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::OURS;
    use crate::runner::page::ExperimentPage;
    use crate::runner::record::{PeerFigures, PeerSample, Record};

    #[test]
    fn jobs_are_beside_the_better_of_the_stock_settings() {
        let of = |peer, seconds: [f64; 2]| {
            let figures = |seconds| PeerFigures::of([("seconds", seconds), ("cpu", 0.5)]);
            seconds
                .map(|seconds| PeerSample::first((JOBS, "", peer, "Sort"), figures(seconds)))
                .to_vec()
        };
        let samples = [
            of("stock-sync", [40.0, 42.0]),
            of("stock-behind", [20.0, 20.0]),
            of(OURS, [30.0, 30.0]),
        ];
        let record = Record {
            samples: samples.concat(),
            ..Record::default()
        };
        let text = ExperimentPage::new(&SUPER.shown, &record).body(2);
        assert!(
            text.contains("| Sort | Hayloft | 30.0 | **1.50 worse** |"),
            "{text}"
        );
        assert!(
            !text.contains("Workers off"),
            "nothing was measured of it: {text}"
        );
    }

    #[test]
    fn the_four_links_have_two_fifths_of_the_disks_rate() {
        let links = f64::from(LINK_MBIT) / 8.0 * 4.0;
        let disks = f64::from(DISK_MBS.0) * 8.0;
        assert!((links / disks - 0.4).abs() < 0.01);
    }
}
