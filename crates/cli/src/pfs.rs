//! `hayloft pfs`: files on a parallel file system, as the jar of `hadoop/pfs` sees them. The work
//! is Java's: this finds Hadoop and the jar, and becomes them. Hadoop is that of `HADOOP_HOME`,
//! else a command in `PATH`, else the jars that `scripts/fetch-hadoop` fetched, as for `fs`.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Args, ValueEnum};
use hayloft_cluster::hadoop::{Hadoop, Jvm, repository_root};

use crate::error::CliError;
use crate::given::environment;

/// The class that does the work.
const TOOL: &str = "io.hayloft.pfs.Tool";
/// The jar's name.
const JAR: &str = "hayloft-pfs.jar";
/// Where Maven makes it, from the repository's root.
const JAR_MADE: &str = "hadoop/pfs/target/hayloft-pfs.jar";
/// Where packages have it, from the directory of the program.
const JAR_PACKAGED: &str = "../share/hayloft/java";
/// Heap of the JVM without Hadoop's command, which has settings of its own.
const HEAP_MIB: u32 = 1024;

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
    /// With heal, copy those files too that changed within the last ten minutes.
    #[arg(long)]
    now: bool,
    /// Directory of core-site.xml [default: as Hadoop's command finds it; without the command
    /// $HADOOP_CONF_DIR or /etc/hadoop/conf].
    #[arg(long, value_name = "DIR")]
    conf: Option<PathBuf>,
    /// The jar of the file system [default: hayloft-pfs.jar beside this program, the one that Maven
    /// made, or on Hadoop's class path].
    #[arg(long, value_name = "FILE")]
    jar: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PfsAction {
    /// Print the servers of each block.
    Layout,
    /// Name files whose copies are missing, damaged or not sealed (exit code 1 if there are any).
    Fsck,
    /// Make those copies anew (exit code 1 if some are left).
    Heal,
}

/// Becomes Hadoop's command, or a JVM on Hadoop's jars; returns only when there is none.
pub fn run(args: &PfsArgs) -> Result<ExitCode, CliError> {
    let jar = jar(args)?;
    let (mut command, advice) = match (environment("HADOOP_HOME"), in_path("hadoop")) {
        (Some(home), _) => {
            let advice = "HADOOP_HOME must name Hadoop's directory, with bin/hadoop in it";
            (script(&home.join("bin/hadoop"), args, jar), advice)
        }
        (None, Some(hadoop)) => {
            let advice = "put Hadoop's command into PATH, or set HADOOP_HOME";
            (script(&hadoop, args, jar), advice)
        }
        (None, None) => (java(args, jar)?, "install a JDK, version 17 or later"),
    };
    let error = command.exec();
    let what = format!("cannot start Hadoop: {error}");
    let program = command.get_program().to_string_lossy().into_owned();
    Err(CliError::new(what, program, advice))
}

/// Hadoop's command, which puts the jar and `HADOOP_CLASSPATH` onto its class path.
fn script(hadoop: &Path, args: &PfsArgs, jar: Option<PathBuf>) -> Command {
    let mut command = Command::new(hadoop);
    if let Some(conf) = &args.conf {
        command.arg("--config").arg(conf);
    }
    command.arg(TOOL).args(words(args));
    if let Some(jar) = jar {
        let mut path = OsString::from(jar);
        if let Some(more) = environment("HADOOP_CLASSPATH") {
            path.push(":");
            path.push(more);
        }
        command.env("HADOOP_CLASSPATH", path);
    }
    command
}

/// A JVM on the jars that were fetched.
fn java(args: &PfsArgs, jar: Option<PathBuf>) -> Result<Command, CliError> {
    let mut hadoop = Hadoop::locate_in(None)?;
    for more in jar.into_iter().chain(environment("HADOOP_CLASSPATH")) {
        hadoop.add_jar(more);
    }
    let given = args.conf.clone().or_else(|| environment("HADOOP_CONF_DIR"));
    let conf = given.unwrap_or_else(|| PathBuf::from("/etc/hadoop/conf"));
    let jvm = Jvm::small(&conf, Path::new("."), HEAP_MIB);
    let words = words(args);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let argv = hadoop.java("pfs", &jvm, TOOL, &words).argv;
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]);
    Ok(command)
}

/// The program called `name` in `PATH`.
fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let is_program = |file: &PathBuf| {
        let found = file.metadata();
        found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(is_program)
}

fn words(args: &PfsArgs) -> Vec<String> {
    let action = args.action.to_possible_value();
    let action = action.map_or_else(String::new, |value| value.get_name().to_owned());
    let mut words = vec![action, args.path.clone()];
    let options = [
        ("--json", args.json),
        ("--read", args.read),
        ("--now", args.now),
    ];
    let given = options.into_iter().filter(|(_, on)| *on);
    words.extend(given.map(|(option, _)| option.to_owned()));
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
    let dir = own.as_deref().and_then(Path::parent);
    let beside = ["", JAR_PACKAGED].into_iter();
    let beside = beside.filter_map(|place| Some(dir?.join(place).join(JAR)));
    let made = repository_root().join(JAR_MADE);
    Ok(beside.chain([made]).find(|jar| jar.is_file()))
}
