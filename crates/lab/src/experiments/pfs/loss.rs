//! All servers but one are killed: every byte of every file is read from the copy that is left.

use std::path::Path;

use serde::Serialize;
use serde_json::json;

use super::layouts::{self, LAYOUTS};
use super::moosefs::MooseFs;
use super::session::{self, Session, Way};
use crate::experiments::ExperimentOptions;
use crate::up::Testbed;
use hayloft_testkit::error::{Result, TestkitError};

/// Servers, and as many copies.
const SERVERS: usize = 3;

/// What was read after the loss.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LossFinding {
    pub layout: &'static str,
    /// Of how many servers one is left.
    pub servers: usize,
    /// Files that clients read.
    pub files: usize,
    /// MiB of them all, each byte compared.
    pub mib: u64,
}

/// Carries it out in `dir`.
///
/// # Errors
/// Also when a byte differs or cannot be read.
pub(super) fn run(
    options: &ExperimentOptions,
    dir: &Path,
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<LossFinding>> {
    let described = layouts::described(options, SERVERS, true);
    crate::up::down(&described.name, dir)?;
    let testbed = Testbed::up(described, dir, false, tell)?;
    let mut moose = MooseFs::start(&testbed)?;
    let hosts: Vec<String> = (0..SERVERS).map(|at| format!("s{at}")).collect();
    let clients = session::clients(&testbed, &hosts)?;
    let bytes = u64::from(options.mib) << 20;
    let ways = LAYOUTS.map(|layout| Way::Copies(layout, SERVERS));
    let file =
        |way: Way| move |at: usize| (format!("{}/c{at}", way.name()), json!({"bytes": bytes}));
    let mut session = Session::begin("-", (&testbed, &moose), &clients)?;
    for way in ways {
        session.all((way, "write"), None, "writeStreams", file(way))?;
    }
    drop(session.end());
    tell("killing all servers but one");
    moose.kill_all_but(SERVERS - 1)?;
    let mut session = Session::begin("-", (&testbed, &moose), &clients)?;
    let mut findings = Vec::new();
    for way in ways {
        tell(&format!("reading what is left, {}", way.name()));
        let read = session.all((way, "read"), None, "readStreams", file(way))?;
        if read != bytes * clients.len() as u64 {
            return Err(TestkitError::Expectation(format!(
                "{}: {read} bytes were read with one server left",
                way.name()
            )));
        }
        findings.push(LossFinding {
            layout: way.name(),
            servers: SERVERS,
            files: clients.len(),
            mib: u64::from(options.mib) * clients.len() as u64,
        });
    }
    Ok(findings)
}
