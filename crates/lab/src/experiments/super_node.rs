//! A SuperDataNode: one process of virtual nodes over eight disks behind four links, against eight
//! stock DataNodes with a disk and a link each. The jobs of the paper's Figure 2, how long the
//! disks' requests took (Figures 3 to 5), and workers that are switched off and on; then what one
//! process costs beside eight.

mod beside;
mod jobs;
mod latency;
mod power;

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use super::scaling::slug;
use super::{ExperimentOptions, chosen, in_words, marks};
use crate::report::{self, spread};
use crate::up::Testbed;
use beside::BesideFinding;
use hayloft_testkit::error::Result;
pub(super) use jobs::{DISKS, all_disks};
use jobs::{JOBS, JobFinding, NAMES, REPLICAS, Storage, Workers};
use latency::LatencySpread;
use power::PowerFinding;

/// Its name.
pub const NAME: &str = "super";
/// What it shows.
pub(super) const ABOUT: &str = "virtual nodes over eight disks against eight stock DataNodes";
/// Sequential rates of its disks, MB/s: reading, writing. Two processors carry no more.
pub const DISK_MBS: (u32, u32) = (25, 22);
/// Rate of a link, Mbit/s: the four have 40 % of the disks' rate together.
pub const LINK_MBIT: u32 = 160;

/// What the jobs took on one kind of storage.
#[derive(Clone, Debug, Default, Serialize)]
struct SuperFinding {
    storage: String,
    jobs: Vec<JobFinding>,
    power: PowerFinding,
    /// Whether workers and nodes were warm.
    warm: Option<bool>,
}

/// Everything so far.
#[derive(Clone, Debug, Default, Serialize)]
struct SuperFindings {
    storage: Vec<SuperFinding>,
    beside: Vec<BesideFinding>,
}

/// The jobs with half of the workers off and on, and one process beside eight.
const PARTS: [&str; 2] = ["jobs", "beside"];

/// Carries out these parts, all if none is named, and writes page and raw data to `out` after each
/// storage.
///
/// # Errors
/// When there is no such part, a testbed does not come up or a job fails; what was measured before
/// is in `out`.
pub fn run(
    options: &ExperimentOptions,
    parts: &[String],
    command: &str,
    (work, out): (&Path, &Path),
    tell: &mut dyn FnMut(&str),
) -> Result<String> {
    let mut findings = SuperFindings::default();
    let save = |findings: &SuperFindings| {
        let text = page(options, command, findings);
        report::save_page(out, &text, "findings.json", findings)?;
        Ok::<_, hayloft_testkit::TestkitError>(text)
    };
    let mut text = String::new();
    let parts = chosen(NAME, &PARTS, parts)?;
    let storages = Storage::ALL.into_iter();
    for storage in storages.filter(|_| parts.contains(&"jobs")) {
        tell(storage.name());
        let slug = slug(storage.name());
        let dir = work.join(&slug);
        let described = storage.described(options);
        crate::up::down(&described.name, &dir)?;
        let mut testbed = Testbed::up(described.clone(), &dir, false, tell)?;
        let workers = Workers::start(&testbed, tell)?;
        let (outcome, maps) = workers.measure(&testbed, options, tell)?;
        report::write(&described, &outcome, command, &out.join(&slug))?;
        tell("switching half of the workers off and on");
        let power = power::off_and_on(storage, &mut testbed, workers, options)?;
        let jobs = JOBS.iter().zip(maps);
        let of = |(job, maps): (&jobs::Job, _)| {
            JobFinding::of(&outcome, (job.name, maps), options.link_mbit)
        };
        findings.storage.push(SuperFinding {
            storage: storage.name().into(),
            jobs: jobs.map(of).collect(),
            power,
            warm: outcome.warm,
        });
        text = save(&findings)?;
    }
    let kinds = ["hayloft", "apache"].into_iter();
    for kind in kinds.filter(|_| parts.contains(&"beside")) {
        tell(&format!("one process beside eight: {kind}"));
        let dir = work.join(format!("beside-{kind}"));
        findings
            .beside
            .push(beside::measure(kind, options, &dir, tell)?);
        text = save(&findings)?;
    }
    Ok(text)
}

fn page(options: &ExperimentOptions, command: &str, findings: &SuperFindings) -> String {
    let mut text = format!(
        "# A SuperDataNode\n\nCommand: `{command}`\n\n\
         {DISKS} modelled hard disks (not real ones) of {} MB/s reading and {} MB/s writing, links \
         of {} Mbit/s, {REPLICAS} replicas in blocks of 16 MiB, {} workers, {} rounds; median \
         (lowest to highest). {}; caches are dropped before each job. The stock DataNodes are in \
         the workers' hosts, a disk and a link each. Hayloft is one process of {} virtual nodes in \
         a host of its own with as many links.\n\n\
         Stock YARN runs the stock jobs over {} MiB for each worker: a NodeManager in each \
         worker's host with {} containers at a time, the ResourceManager beside the NameNode, \
         Hadoop's default scheduler. What tasks spill is on the machine's own disk. A round before \
         the first one does not count; every task is a new JVM.\n",
        options.disk_mbs.0,
        options.disk_mbs.1,
        options.link_mbit,
        options.largest.min(DISKS),
        options.rounds,
        options.listed_conf(),
        NAMES.len(),
        options.mib,
        jobs::MAPS + 1,
    );
    if !findings.storage.is_empty() {
        job_tables(&mut text, &findings.storage);
        latency_tables(&mut text, &findings.storage);
        power_table(&mut text, &findings.storage);
    }
    if !findings.beside.is_empty() {
        text.push_str(&beside::section(options, &findings.beside));
    }
    text.push_str(&marks::legend(true));
    text
}

/// Figure 2.
fn job_tables(text: &mut String, findings: &[SuperFinding]) {
    text.push_str(
        "\n## Jobs (Figure 2)\n\n| job | storage | seconds | disks busy | waited for a \
                   processor | late | limited by | maps beside their data, in its rack, elsewhere \
                   |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (at, job) in JOBS.iter().enumerate() {
        for finding in findings {
            let Some(done) = finding.jobs.get(at) else {
                continue;
            };
            let _ = writeln!(
                text,
                "| {} | {}{} | {} | {:.0} % | {:.0} % | {} | {} | {}, {}, {} |",
                job.name,
                finding.storage,
                marks::signs(done.waited, finding.warm),
                in_words(spread(done.seconds.clone())),
                done.disk_busy * 100.0,
                done.waited * 100.0,
                done.late,
                done.limit,
                done.maps.local,
                done.maps.rack,
                done.maps.other,
            );
        }
    }
    if let [stock, ours] = findings {
        text.push_str(
            "\n| | time of one process against stock | the paper's SuperDataNode |\n\
                       |---|---|---|\n",
        );
        let both = stock.jobs.iter().zip(&ours.jobs);
        for (job, (stock, ours)) in JOBS.iter().zip(both) {
            let [stock, ours] = [stock, ours].map(|done| spread(done.seconds.clone()).0);
            let gain = (ours / stock - 1.0) * 100.0;
            let _ = writeln!(text, "| {} | {gain:+.0} % | {} |", job.name, job.paper);
        }
    }
}

/// Figures 3 to 5: which job, which direction.
fn latency_tables(text: &mut String, findings: &[SuperFinding]) {
    text.push_str(
        "\n## Requests of the disks (Figures 3 to 5)\n\nBy the disks' own counters, from arrival \
         to the end of service. So many milliseconds at most for this share of the requests; \
         a figure is at most twice too high.\n\n\
         | figure | storage | requests | 50 % | 90 % | 99 % |\n|---|---|---|---|---|---|\n",
    );
    type Of = fn(&JobFinding) -> &LatencySpread;
    let figures: [(&str, &str, Of); 3] = [
        ("3: Sort reads", "Sort", |done| &done.read),
        ("4: Sort writes", "Sort", |done| &done.write),
        ("5: Grep reads", "Grep", |done| &done.read),
    ];
    for (figure, job, of) in figures {
        for finding in findings {
            let done = finding.jobs.iter().filter(|done| done.job == job);
            for done in done {
                let _ = writeln!(
                    text,
                    "| {figure} | {} | {} |",
                    finding.storage,
                    of(done).cell()
                );
            }
        }
    }
}

fn power_table(text: &mut String, findings: &[SuperFinding]) {
    text.push_str(
        "\n## Workers off and on\n\nHalf of the workers are switched off with what runs in their \
         hosts, and on again when the NameNode has nothing to copy. By its counters.\n\n\
         | storage | workers off | live nodes before, off, after | blocks short of a replica, at \
         most | blocks without one, at most | blocks copied | settled after s |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for finding in findings {
        let power = &finding.power;
        let settled = power.settled_s.map(|s| format!("{s:.0}"));
        let _ = writeln!(
            text,
            "| {} | {} | {}, {}, {} | {} | {} | {} | {} |",
            finding.storage,
            power.off,
            power.live.0,
            power.live.1,
            power.live.2,
            power.low,
            power.missing,
            power.copied,
            settled.as_deref().unwrap_or("not within the limit"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(storage: Storage, seconds: f64, waited: f64) -> SuperFinding {
        let job = |job: &jobs::Job| JobFinding {
            job: job.name.into(),
            seconds: vec![seconds],
            waited,
            ..JobFinding::default()
        };
        SuperFinding {
            storage: storage.name().into(),
            jobs: JOBS.iter().map(job).collect(),
            power: PowerFinding {
                off: 4,
                live: (8, 4, 8),
                copied: 77,
                ..PowerFinding::default()
            },
            warm: Some(true),
        }
    }

    #[test]
    fn the_page_has_every_figure_beside_the_paper_s() {
        let findings = SuperFindings {
            storage: vec![
                finding(Storage::Stock, 20.0, 0.0),
                finding(Storage::Super, 30.0, 0.5),
            ],
            beside: Vec::new(),
        };
        let text = page(&ExperimentOptions::default(), "c", &findings);
        for wanted in [
            "| Sort | one process of Hayloft † | 30.0 (30.0 to 30.0) | 0 % | 50 % |",
            "| RandomWriter | +50 % | 92 % slower |",
            "| 5: Grep reads | 8 stock DataNodes | 0 | - | - | - |",
            "| 8 stock DataNodes | 4 | 8, 4, 8 | 0 | 0 | 77 | not within the limit |",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
    }

    #[test]
    fn the_four_links_have_two_fifths_of_the_disks_rate() {
        let links = f64::from(LINK_MBIT) / 8.0 * 4.0;
        let disks = f64::from(DISK_MBS.0) * 8.0;
        assert!((links / disks - 0.4).abs() < 0.01);
    }
}
