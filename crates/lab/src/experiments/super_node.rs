//! A SuperDataNode: one process of virtual nodes over eight disks behind four links, against eight
//! stock DataNodes with a disk and a link each. The jobs of the paper's Figure 2, how long the
//! disks' requests took (Figures 3 to 5), and workers that are switched off and on; then what one
//! process costs beside eight.

mod beside;
mod jobs;
mod latency;
mod power;

use hayloft_bench::fair::stock::Stock;

use super::testbeds::{CONTAINER_S, DISKS, scaled, slow_disks};
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
/// Sequential rates of its disks, MB/s: reading, writing.
const DISK_MBS: (u32, u32) = (2, 2);
/// Rate of a link, Mbit/s: more than a disk's, and the four less than all disks together.
const LINK_MBIT: u32 = 25;

fn wants_of_beside() -> Vec<WantedRatio> {
    beside::wants(BESIDE)
}

fn about(options: &ExperimentOptions) -> String {
    let (read, write) = options.disk_mbs;
    let workers = u32::try_from(options.largest.min(DISKS)).unwrap_or(u32::MAX);
    let tasks = workers * jobs::MAPS;
    format!(
        "{DISKS} modelled hard disks (not real ones) of {read} MB/s reading and {write} MB/s \
         writing, links of {} Mbit/s, {} replicas in blocks of {} MiB, {} workers. What is closed \
         is on the disk; caches are dropped before each job. The stock DataNodes are in the \
         workers' hosts, a disk and a link each. Hayloft is one process of {} virtual nodes in a \
         host of its own with as many links. {}\n\nStock YARN runs the stock jobs over {} MiB for \
         each worker: a NodeManager in each worker's host with {} containers at a time, the \
         ResourceManager beside the NameNode, Hadoop's default scheduler. What tasks spill is on \
         the machine's own disk. Each turn starts storage and YARN anew, warms the nodes by \
         a resident client, and runs all jobs once before they count; every task is a new JVM. A \
         map task reads a whole file, so there are few: a job's {tasks} of about {CONTAINER_S} \
         processor seconds take {:.0} s of two processors, and its bytes {:.0} s of the disks. {}",
        options.link_mbit,
        jobs::REPLICAS,
        options.block_mib,
        options.largest.min(DISKS),
        jobs::NAMES.len(),
        Stock::EXPLAINED,
        options.mib,
        jobs::MAPS + 1,
        f64::from(tasks) * CONTAINER_S / 2.0,
        f64::from(options.mib) * f64::from(1 << 20) / 1e6 * f64::from(workers)
            / (f64::from(read) * f64::from(u32::try_from(DISKS).unwrap_or(u32::MAX))),
        scaled(options, DISKS),
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
    fn a_link_carries_a_disk_and_the_four_do_not_carry_all() {
        let link = f64::from(LINK_MBIT) / 8.0;
        let disk = f64::from(DISK_MBS.0);
        assert!(link > disk && 4.0 * link < 8.0 * disk);
    }

    #[test]
    fn what_limits_is_said_by_its_arithmetic() {
        let said = about(&(SUPER.options)());
        let jobs = "16 of about 3 processor seconds take 24 s of two processors, and its bytes \
                    101 s of the disks";
        assert!(said.contains(jobs), "{said}");
        let disks = "16 MB/s of 8 disks take 5 % of two processors";
        assert!(said.contains(disks), "{said}");
    }
}
