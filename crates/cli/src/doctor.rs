//! `hayloft doctor`: what makes this host slow or unsafe for a node, and the command that mends it.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{Args, ValueEnum};
use hayloft_conf::{Configuration, keys};
use hayloft_doctor::{
    CHECKS, HostCheck, Looked, Probe, Report, Severity, Subject, TrialFacts, VolumeFacts,
};
use hayloft_node::daemon::ThreadsWanted;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::disk_look_process::{Apart, OWN_PROGRAM};
use crate::error::{BAD, CliError, FINDING};
use crate::json::print_json;

/// A disk that does nothing for so long is given up.
const STILL: Duration = Duration::from_secs(10);
/// Bytes of an answer, at most.
const ANSWER_MAX: u64 = 16 << 20;

/// `hayloft doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Data directories to look at instead of those of the configuration, which may then be absent.
    dirs: Vec<PathBuf>,
    /// Directory of core-site.xml and hdfs-site.xml
    /// [default: $HADOOP_CONF_DIR, $HADOOP_HOME/etc/hadoop or /etc/hadoop/conf].
    #[arg(long, value_name = "DIR")]
    conf: Option<PathBuf>,
    /// Report as JSON on stdout.
    #[arg(long)]
    json: bool,
    /// Make only these checks. May be repeated.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = check)]
    only: Vec<&'static HostCheck>,
    /// Write nothing into the data directories, not even for a moment.
    #[arg(long)]
    no_write: bool,
    /// Print the table of the checks, as the documentation has it.
    #[arg(long, conflicts_with_all = ["conf", "json", "only", "no_write", "dirs"])]
    markdown: bool,
    /// For this program itself: look at one directory, whose disk may hang.
    #[arg(long, hide = true)]
    look: Option<LookFor>,
}

/// What a process of its own looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LookFor {
    /// What is there.
    Volume,
    /// What can be done there.
    Trial,
}

impl LookFor {
    fn name(self) -> &'static str {
        match self {
            Self::Volume => "volume",
            Self::Trial => "trial",
        }
    }
}

fn check(name: &str) -> Result<&'static HostCheck, String> {
    hayloft_doctor::named(name).ok_or_else(|| {
        let names: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
        format!("must be one of {}", names.join(", "))
    })
}

/// Looks, and reports: exit code 0 when all is well, 1 when something is slow, 3 when something is
/// bad.
pub fn run(args: &DoctorArgs) -> Result<ExitCode, CliError> {
    if let (Some(what), [dir]) = (args.look, &args.dirs[..]) {
        return look_at_one(what, dir);
    }
    if args.markdown {
        print!("{}", hayloft_doctor::markdown(CHECKS));
        return Ok(ExitCode::SUCCESS);
    }
    let subject = subject(args)?;
    let checks: Vec<&HostCheck> = match args.only.is_empty() {
        true => CHECKS.iter().collect(),
        false => args.only.clone(),
    };
    let report = hayloft_doctor::examine(subject, &checks, &OwnProcesses, !args.no_write);
    match args.json {
        true => print_json(&report)?,
        false => print!("{}", report.text()),
    }
    Ok(code(&report))
}

fn code(report: &Report) -> ExitCode {
    match report.worst {
        None | Some(Severity::Note) => ExitCode::SUCCESS,
        Some(Severity::Slow) => ExitCode::from(FINDING),
        Some(Severity::Bad) => ExitCode::from(BAD),
    }
}

fn subject(args: &DoctorArgs) -> Result<Subject, CliError> {
    let mut dirs = Vec::new();
    for dir in &args.dirs {
        dirs.push(std::path::absolute(dir).map_err(CliError::file("look at", dir))?);
    }
    let conf = match crate::given::conf_dir(args.conf.as_deref()) {
        Err(_) if !dirs.is_empty() => None,
        conf => Some(Configuration::load(&conf?, &[])?),
    };
    let mut subject = match &conf {
        Some(config) => Subject::of(config)?,
        None => Subject::of_dirs(&dirs),
    };
    if !dirs.is_empty() {
        subject.volumes = Subject::of_dirs(&dirs).volumes;
    }
    let depth = conf.map_or(0, |config| config.get(&keys::IO_DEPTH));
    let nodes = subject.data_ports.len().max(1);
    let wanted = ThreadsWanted::of(subject.volumes.len(), nodes, depth);
    subject.threads = (wanted.fewest, wanted.most);
    Ok(subject)
}

/// Looks at one directory and prints what is there, or why that is not known.
fn look_at_one(what: LookFor, dir: &Path) -> Result<ExitCode, CliError> {
    fn tell(answer: &impl Serialize) -> Result<ExitCode, CliError> {
        serde_json::to_writer(std::io::stdout().lock(), answer)
            .map_err(|error| CliError::new(format!("cannot print: {error}"), "", ""))?;
        Ok(ExitCode::SUCCESS)
    }
    match what {
        LookFor::Volume => tell(&Looked::Ok(VolumeFacts::of(dir))),
        LookFor::Trial => tell(&hayloft_doctor::try_out(dir)),
    }
}

/// Each directory is looked at by a process of its own.
struct OwnProcesses;

impl Probe for OwnProcesses {
    fn volume(&self, dir: &Path) -> Looked<VolumeFacts> {
        ask(LookFor::Volume, dir)
    }

    fn trial(&self, dir: &Path) -> Looked<TrialFacts> {
        ask(LookFor::Trial, dir)
    }
}

fn ask<T: DeserializeOwned>(what: LookFor, dir: &Path) -> Looked<T> {
    let mut command = Command::new(OWN_PROGRAM);
    command
        .args(["doctor", "--look", what.name(), "--"])
        .arg(dir);
    let said = Apart::start(&mut command, ANSWER_MAX).while_it_works(STILL);
    let hung = || format!("its disk gave no answer for {} s", STILL.as_secs());
    let answer: Result<Looked<T>, _> = serde_json::from_slice(&said.ok_or_else(hung)??);
    answer.map_err(|error| error.to_string())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page has the table that the program prints.
    #[test]
    fn the_page_has_every_check() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate/doctor.md");
        let page = std::fs::read_to_string(page).expect("the page is there");
        let table = hayloft_doctor::markdown(CHECKS);
        assert!(
            page.contains(&table),
            "paste `hayloft doctor --markdown` into it:\n{table}"
        );
    }

    #[test]
    fn checks_are_named() {
        assert_eq!(check("mtu").expect("known").name, "mtu");
        assert!(check("x").unwrap_err().contains("read-ahead"));
    }
}
