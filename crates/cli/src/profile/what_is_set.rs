//! What a directory of a tool's configuration sets now, and where.

use std::io;
use std::path::{Path, PathBuf};

use hayloft_conf::{ConfigError, Configuration, JavaProperty, Origin, java_properties};
use hayloft_conf::{read_java_file, shown};

use crate::error::CliError;

use super::compute_properties::{CAPACITY, ComputeProperty, ComputeTool, FLINK, SPARK, YARN};
use super::flink_lines::{flat_flink_lines, flink_lines};

/// What jobs and their clients read, in order: later files win, but over what is final.
const OF_JOBS: [&str; 5] = [
    "core-site.xml",
    "mapred-site.xml",
    YARN,
    "hdfs-site.xml",
    "tez-site.xml",
];
/// What clients of Spark read of HDFS, in order.
const OF_SPARK: [&str; 2] = ["core-site.xml", "hdfs-site.xml"];
/// What YARN's daemons read, in order. The CapacityScheduler has its own file over it.
const OF_YARN: [&str; 2] = ["core-site.xml", YARN];
/// Flink's files: the first that is there counts, as up to Flink 1.20. Later ones have the second
/// alone.
const OF_FLINK: [&str; 2] = ["flink-conf.yaml", FLINK];

/// A value that is set.
#[derive(Debug)]
pub struct HeldValue {
    /// Its text with references replaced, or why they cannot be.
    pub text: Result<String, String>,
    /// File and line.
    pub place: String,
    /// No file after it, and no job, sets it otherwise.
    pub is_final: bool,
}

/// The lines of Spark's or Flink's file.
#[derive(Debug)]
struct LinesFile {
    path: PathBuf,
    /// Or the second line of a key that is there twice, which its reader refuses.
    lines: Result<Vec<JavaProperty>, JavaProperty>,
}

/// A directory of a tool's configuration.
#[derive(Debug)]
pub struct JobsConf {
    dir: PathBuf,
    jobs: Configuration,
    yarn: Configuration,
    scheduler: Configuration,
    lines: Option<LinesFile>,
}

impl JobsConf {
    /// Reads the files that the properties belong into, and those before them.
    ///
    /// # Errors
    /// A directory that cannot be read or has none of the files, and files that cannot be read.
    pub fn read(
        dir: &Path,
        tool: ComputeTool,
        properties: &[ComputeProperty],
    ) -> Result<Self, CliError> {
        let mut wanted: Vec<_> = properties.iter().map(|property| property.file).collect();
        wanted.dedup();
        let advice = format!("name the directory of {} with --conf", wanted.join(", "));
        let place = dir.display().to_string();
        if let Err(error) = std::fs::read_dir(dir) {
            let what = format!("cannot read the configuration: {error}");
            return Err(CliError::new(what, place, advice));
        }
        let bare = Configuration::of_directory(dir);
        let (of_jobs, of_yarn, of_scheduler): (&[&str], &[&str], &[&str]) = match tool {
            ComputeTool::Spark => (&OF_SPARK, &[], &[]),
            ComputeTool::Flink => (&[], &[], &[]),
            ComputeTool::MapReduce | ComputeTool::Tez => (&OF_JOBS, &OF_YARN, &[CAPACITY]),
        };
        let yarn = over(&bare, of_yarn)?;
        let conf = Self {
            dir: dir.to_path_buf(),
            jobs: over(&bare, of_jobs)?,
            scheduler: over(&yarn, of_scheduler)?,
            yarn,
            lines: match tool {
                ComputeTool::Spark => lines_of(&dir.join(SPARK), |text| Ok(java_properties(text)))?,
                ComputeTool::Flink => {
                    match lines_of(&dir.join(OF_FLINK[0]), |text| Ok(flat_flink_lines(text)))? {
                        None => lines_of(&dir.join(OF_FLINK[1]), flink_lines)?,
                        old => old,
                    }
                }
                ComputeTool::MapReduce | ComputeTool::Tez => None,
            },
        };
        if !wanted.iter().any(|file| conf.has(file)) {
            return Err(CliError::new("no file of the tool is there", place, advice));
        }
        Ok(conf)
    }

    /// Whether the directory has this file.
    pub fn has(&self, file: &str) -> bool {
        match file {
            SPARK | FLINK => self.lines.is_some(),
            file => self.jobs.has_file(file),
        }
    }

    /// Where all this is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What sets `name` for those who read `file`.
    pub fn held(&self, file: &str, name: &str) -> Option<HeldValue> {
        match file {
            FLINK => self.lines.as_ref()?.held(name),
            // Spark drops other names of its file; Hadoop's own are in Hadoop's files.
            SPARK if name.starts_with("spark.") => self.lines.as_ref()?.held(name),
            YARN => held_by_xml(&self.yarn, name),
            CAPACITY => held_by_xml(&self.scheduler, name),
            _ => held_by_xml(&self.jobs, name),
        }
    }
}

fn over(bare: &Configuration, files: &[&str]) -> Result<Configuration, CliError> {
    let all = files
        .iter()
        .try_fold(bare.clone(), |so_far, file| so_far.over(file));
    all.map_err(|error| match &error {
        ConfigError::Read { source, .. } => CliError::new(error.to_string(), "", advice(source)),
        _ => error.into(),
    })
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        // What the readers of files say themselves, and not the system.
        io::ErrorKind::Other => {
            "put a file there that is not too large, or name another directory with --conf"
        }
        _ => "let this user read it, or name another directory with --conf",
    }
}

fn lines_of(
    path: &Path,
    parse: impl Fn(&str) -> Result<Vec<JavaProperty>, JavaProperty>,
) -> Result<Option<LinesFile>, CliError> {
    let text = read_java_file(path).map_err(|error| {
        let what = format!("cannot read the configuration: {error}");
        CliError::new(what, path.display().to_string(), advice(&error))
    })?;
    Ok(text.map(|text| LinesFile {
        path: path.to_path_buf(),
        lines: parse(&text),
    }))
}

impl LinesFile {
    /// The last line of a key counts.
    fn held(&self, name: &str) -> Option<HeldValue> {
        let place = |line: usize| format!("{}:{line}", self.path.display());
        let lines = match &self.lines {
            Ok(lines) => lines,
            Err(JavaProperty { line, key, .. }) => {
                let (key, place) = (shown(key), place(*line));
                return Some(HeldValue {
                    text: Err(format!("{place} has {key} again, which stops Flink")),
                    place,
                    is_final: false,
                });
            }
        };
        let is_named = |one: &&JavaProperty| one.key == name;
        // A map on one line, which is not taken apart.
        let holds = |one: &&JavaProperty| {
            let within = name.strip_prefix(one.key.as_str());
            within.is_some_and(|rest| rest.starts_with('.')) && one.value.starts_with('{')
        };
        let mut lines = lines.iter().rev();
        let (one, map) = match lines.clone().find(is_named) {
            Some(one) => (one, false),
            None => (lines.find(holds)?, true),
        };
        Some(HeldValue {
            text: match map {
                false => Ok(one.value.clone()),
                true => Err(format!("{} is a map on one line", shown(&one.key))),
            },
            place: place(one.line),
            is_final: false,
        })
    }
}

fn held_by_xml(config: &Configuration, name: &str) -> Option<HeldValue> {
    let origin = config.origin(name);
    if origin == Origin::Default {
        return None;
    }
    let text = config.untrimmed(name).map(Option::unwrap_or_default);
    Some(HeldValue {
        text: text.map_err(|error| error.to_string()),
        place: origin.to_string(),
        is_final: config.is_final(name),
    })
}
