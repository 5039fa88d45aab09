//! `pfs://` on MooseFS against HDFS on the same disks in the same run: Figures 3 to 11 of the
//! HDFS/PVFS paper, and what is left when servers are lost.
//!
//! [`moosefs`] starts MooseFS on a testbed, [`session`] has clients write and read; [`reads`],
//! [`layouts`], [`loss`] and [`jobs`] are the parts.

mod jobs;
mod layouts;
mod loss;
mod moosefs;
mod page;
mod reads;
mod session;

use std::path::Path;

use serde::Serialize;

use super::{ExperimentOptions, chosen};
use crate::report;
use hayloft_testkit::error::Result;
use hayloft_testkit::machine;
use loss::LossFinding;
use session::PfsRow;

/// Its name.
pub const NAME: &str = "pfs";
/// What it shows.
pub(super) const ABOUT: &str = "Hadoop on a parallel file system (MooseFS) against HDFS";
/// Links slower than the disks: a copy in the client's own host is worth something.
pub const LINK_MBIT: u32 = 100;
/// MiB that each client writes.
pub const MIB: u32 = 32;
/// Parts that can be run alone.
pub const PARTS: [&str; 5] = ["read-sizes", "layouts", "memory", "loss", "jobs"];

/// Everything that was found.
#[derive(Debug, Default, Serialize)]
struct PfsFindings {
    command: String,
    machine: std::collections::BTreeMap<String, String>,
    rounds: usize,
    mib: u32,
    rows: Vec<PfsRow>,
    loss: Vec<LossFinding>,
    jobs: Vec<jobs::PfsJobRow>,
    bars: Vec<page::Bar>,
}

/// Carries out these parts, all if none is named, and writes page and raw data to `out` after each
/// step.
///
/// # Errors
/// When something is missing, a testbed does not come up, or a client fails.
pub fn run(
    options: &ExperimentOptions,
    parts: &[String],
    command: &str,
    (work, out): (&Path, &Path),
    tell: &mut dyn FnMut(&str),
) -> Result<String> {
    let parts = chosen(NAME, &PARTS, parts)?;
    moosefs::check()?;
    let mut findings = PfsFindings {
        command: command.into(),
        machine: machine::describe(),
        rounds: options.rounds,
        mib: options.mib,
        ..PfsFindings::default()
    };
    let mut text = String::new();
    let mut save = |findings: &mut PfsFindings| -> Result<()> {
        findings.bars = page::bars(&findings.rows);
        findings.bars.extend(page::job_bars(&findings.jobs));
        text = page::page(options, findings);
        report::save_page(out, &text, "findings.json", findings)
    };
    for part in parts {
        tell(&format!("part {part}"));
        let dir = work.join(part);
        match part {
            "read-sizes" => {
                for link in reads::LINKS {
                    let rows = reads::run(options, link, &dir, tell)?;
                    findings.rows.extend(rows);
                    save(&mut findings)?;
                }
            }
            "layouts" => {
                let servers = layouts::SERVERS.into_iter();
                for servers in servers.filter(|servers| *servers <= options.largest) {
                    let rows = layouts::run(options, servers, &dir, tell)?;
                    findings.rows.extend(rows);
                    save(&mut findings)?;
                }
            }
            "memory" => {
                let rows = layouts::run_on_memory(options, &dir, tell)?;
                findings.rows.extend(rows);
            }
            "loss" => findings.loss = loss::run(options, &dir, tell)?,
            _ => findings.jobs = jobs::run(options, &dir, tell)?,
        }
        save(&mut findings)?;
    }
    Ok(text)
}
