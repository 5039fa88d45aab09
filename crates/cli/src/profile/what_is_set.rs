//! What a directory of a tool's configuration sets now, and where.

use std::path::{Path, PathBuf};

use hayloft_conf::{ConfigError, Configuration, JavaProperty, Origin, java_properties};
use hayloft_conf::{read_java_file, shown};

use crate::error::CliError;

use super::compute_properties::{CAPACITY, ComputeProperty, ComputeTool, FLINK, SPARK, YARN};
use super::flink_lines::flink_lines;

/// What jobs and their clients read, in order: later files win, but over what is final.
const OF_JOBS: [&str; 5] = [
    "core-site.xml",
    "mapred-site.xml",
    YARN,
    "hdfs-site.xml",
    "tez-site.xml",
];
/// What the ResourceManager reads, in order.
const OF_MANAGER: [&str; 3] = ["core-site.xml", YARN, CAPACITY];
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
    lines: Vec<JavaProperty>,
}

/// A directory of a tool's configuration.
#[derive(Debug)]
pub struct JobsConf {
    dir: PathBuf,
    jobs: Configuration,
    manager: Configuration,
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
        let conf = Self {
            dir: dir.to_path_buf(),
            jobs: over(&bare, &OF_JOBS)?,
            manager: over(&bare, &OF_MANAGER)?,
            lines: match tool {
                ComputeTool::Spark => lines_of(&dir.join(SPARK), java_properties)?,
                ComputeTool::Flink => match lines_of(&dir.join(OF_FLINK[0]), flink_lines)? {
                    None => lines_of(&dir.join(OF_FLINK[1]), flink_lines)?,
                    old => old,
                },
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
            SPARK | FLINK => {
                let lines = self.lines.as_ref();
                let held = lines.and_then(|lines| lines.held(name));
                // Hadoop's own keys are Hadoop's files' too.
                held.or_else(|| held_by_xml(&self.jobs, name))
            }
            YARN | CAPACITY => held_by_xml(&self.manager, name),
            _ => held_by_xml(&self.jobs, name),
        }
    }
}

fn over(bare: &Configuration, files: &[&str]) -> Result<Configuration, CliError> {
    let all = files
        .iter()
        .try_fold(bare.clone(), |so_far, file| so_far.over(file));
    all.map_err(|error| match error {
        ConfigError::Read { .. } => CliError::new(error.to_string(), "", READABLE),
        other => other.into(),
    })
}

const READABLE: &str = "let this user read it, or name another directory with --conf";

fn lines_of(
    path: &Path,
    parse: impl Fn(&str) -> Vec<JavaProperty>,
) -> Result<Option<LinesFile>, CliError> {
    let text = read_java_file(path).map_err(|error| {
        let what = format!("cannot read the configuration: {error}");
        CliError::new(what, path.display().to_string(), READABLE)
    })?;
    Ok(text.map(|text| LinesFile {
        path: path.to_path_buf(),
        lines: parse(&text),
    }))
}

impl LinesFile {
    /// The last line of a key counts.
    fn held(&self, name: &str) -> Option<HeldValue> {
        let is_named = |one: &&JavaProperty| one.key == name;
        // A map on one line, which is not taken apart.
        let holds = |one: &&JavaProperty| {
            let within = name.strip_prefix(one.key.as_str());
            within.is_some_and(|rest| rest.starts_with('.')) && one.value.starts_with('{')
        };
        let mut lines = self.lines.iter().rev();
        let (one, map) = match lines.clone().find(is_named) {
            Some(one) => (one, false),
            None => (lines.find(holds)?, true),
        };
        Some(HeldValue {
            text: match map {
                false => Ok(one.value.clone()),
                true => Err(format!("{} is a map on one line", shown(&one.key))),
            },
            place: format!("{}:{}", self.path.display(), one.line),
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
