//! `hayloft pfs`: files on a parallel file system, as the jar of `hadoop/pfs` sees them. The work
//! is Java's: this finds Hadoop's command and the jar, and becomes it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Args, ValueEnum};

use crate::error::CliError;

/// The class that does the work.
const TOOL: &str = "io.hayloft.pfs.Tool";
/// The jar's name.
const JAR: &str = "hayloft-pfs.jar";

/// `hayloft pfs`.
#[derive(Debug, Args)]
pub struct PfsArgs {
    /// What to do.
    #[arg(value_enum)]
    action: PfsAction,
    /// A file or directory, such as pfs:///data.
    #[arg(value_name = "PATH")]
    path: String,
    /// Report as JSON, one object a line.
    #[arg(long)]
    json: bool,
    /// Compare the bytes of copies too, not only their lengths.
    #[arg(long)]
    read: bool,
    /// `heal`: also files that changed within ten minutes.
    #[arg(long)]
    now: bool,
    /// Directory of core-site.xml [default: as Hadoop's command finds it].
    #[arg(long, value_name = "DIR")]
    conf: Option<PathBuf>,
    /// The jar [default: hayloft-pfs.jar beside this program, or on Hadoop's class path].
    #[arg(long, value_name = "FILE")]
    jar: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PfsAction {
    /// The servers of each block.
    Layout,
    /// Files whose copies are missing, damaged or not sealed (exit code 1 if there are any).
    Fsck,
    /// Make those copies anew (exit code 1 if some are left).
    Heal,
}

/// Becomes Hadoop's command; returns only when there is none.
pub fn run(args: &PfsArgs) -> Result<ExitCode, CliError> {
    let (hadoop, home) = hadoop();
    let mut command = Command::new(&hadoop);
    if let Some(conf) = &args.conf {
        command.arg("--config").arg(conf);
    }
    command.arg(TOOL).args(words(args));
    if let Some(jar) = jar(args)? {
        let mut path = OsString::from(jar);
        if let Some(more) = std::env::var_os("HADOOP_CLASSPATH").filter(|more| !more.is_empty()) {
            path.push(":");
            path.push(more);
        }
        command.env("HADOOP_CLASSPATH", path);
    }
    let error = command.exec();
    let advice = match home {
        true => "HADOOP_HOME must name Hadoop's directory, with bin/hadoop in it",
        false => "put Hadoop's command into PATH, or set HADOOP_HOME",
    };
    let what = format!("cannot start Hadoop: {error}");
    Err(CliError::new(what, hadoop.display().to_string(), advice))
}

/// Hadoop's command, and whether `HADOOP_HOME` names it.
fn hadoop() -> (PathBuf, bool) {
    match std::env::var_os("HADOOP_HOME").filter(|home| !home.is_empty()) {
        Some(home) => (Path::new(&home).join("bin/hadoop"), true),
        None => ("hadoop".into(), false),
    }
}

fn words(args: &PfsArgs) -> Vec<String> {
    let action = match args.action {
        PfsAction::Layout => "layout",
        PfsAction::Fsck => "fsck",
        PfsAction::Heal => "heal",
    };
    let mut words = vec![action.to_owned(), args.path.clone()];
    let options = [
        ("--json", args.json),
        ("--read", args.read),
        ("--now", args.now),
    ];
    words.extend(
        options
            .into_iter()
            .filter(|(_, on)| *on)
            .map(|(o, _)| o.to_owned()),
    );
    words
}

/// The jar to put onto the class path; `None`: Hadoop has it already, or says that it lacks it.
fn jar(args: &PfsArgs) -> Result<Option<PathBuf>, CliError> {
    if let Some(jar) = &args.jar {
        if jar.is_file() {
            return Ok(Some(jar.clone()));
        }
        let place = jar.display().to_string();
        return Err(CliError::new(
            "there is no such jar",
            place,
            "mvn -f hadoop/pom.xml -pl pfs package makes hadoop/pfs/target/hayloft-pfs.jar",
        ));
    }
    let own = std::env::current_exe().ok();
    let beside = own
        .as_deref()
        .and_then(Path::parent)
        .map(|dir| dir.join(JAR));
    Ok(beside.filter(|jar| jar.is_file()))
}
