//! The daemon's log: lines on stderr, for the service manager to keep, or in a file. Its levels may
//! change while it runs.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use hayloft_io::locks;
use hayloft_node::daemonlog::{self, LogLevels};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry, reload};

use crate::error::CliError;
use crate::log_file::{LogCut, RotatedFile, wanted};
use crate::log_line::OneLine;

/// Environment variable with the log filter, such as `info` or `hayloft_node::xceiver=debug`.
const FILTER_VARIABLE: &str = "HAYLOFT_LOG";
const DEFAULT: &str = "info";

/// Targets that may have a level of their own: clients of the web port name them.
const TARGETS_MAX: usize = 100;

/// Starts logging, of a node with its configuration at `conf`: to a file where one is wanted, else
/// to stderr, coloured on a terminal unless `NO_COLOR` is set. Gives the file.
///
/// # Errors
/// The file cannot be opened.
pub fn start(conf: &Path) -> Result<Option<PathBuf>, CliError> {
    let path = wanted();
    let file = path.as_deref().map(|path| {
        let opened = RotatedFile::open(path, LogCut::of(conf));
        opened.map_err(CliError::file("write the log", path))
    });
    let file = file.transpose()?;
    let text = std::env::var(FILTER_VARIABLE).unwrap_or_default();
    let given = EnvFilter::try_new(&text).ok().filter(|_| !text.is_empty());
    let (filter, text) = match given {
        Some(filter) => (filter, text),
        None => (EnvFilter::new(DEFAULT), DEFAULT.to_owned()),
    };
    let (filter, handle) = reload::Layer::new(filter);
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines = tracing_subscriber::fmt::layer();
    let lines = match file {
        Some(file) => {
            let file = Mutex::new(OneLine(file));
            lines.with_writer(file).with_ansi(false).boxed()
        }
        None => {
            let stderr = || OneLine(std::io::stderr());
            lines.with_writer(stderr).with_ansi(colour).boxed()
        }
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .init();
    daemonlog::install(Box::new(FilteredLog {
        handle,
        levels: Mutex::new(parsed(&text)),
        file: path.clone(),
    }));
    Ok(path)
}

/// Has a command say on stderr what its libraries warn of.
#[cfg(feature = "snapshots")]
pub fn warnings() {
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time()
        .with_target(false);
    tracing_subscriber::registry()
        .with(EnvFilter::new("hayloft=warn"))
        .with(lines)
        .init();
}

/// Target to level; an empty target is that of all others.
type Levels = BTreeMap<String, String>;

/// The plain directives of a filter. Those about spans and fields cannot be asked for, and go when
/// a level is set.
fn parsed(filter: &str) -> Levels {
    let plain = |text: &str| {
        text.chars()
            .all(|c| c.is_alphanumeric() || "_:".contains(c))
    };
    let directives = filter.split(',').map(str::trim).filter(|d| !d.is_empty());
    let pairs = directives.filter_map(|directive| match directive.split_once('=') {
        Some((target, level)) => plain(target).then(|| (target.to_owned(), level.to_owned())),
        None => plain(directive).then(|| match named(directive) {
            Some(level) => (String::new(), level.to_owned()),
            None => (directive.to_owned(), "trace".to_owned()),
        }),
    });
    pairs.collect()
}

/// Our level for a name of log4j's or ours.
fn named(level: &str) -> Option<&'static str> {
    Some(match level.to_ascii_uppercase().as_str() {
        "OFF" => "off",
        "FATAL" | "ERROR" => "error",
        "WARN" => "warn",
        "INFO" => "info",
        "DEBUG" => "debug",
        "TRACE" | "ALL" => "trace",
        _ => return None,
    })
}

struct FilteredLog {
    handle: reload::Handle<EnvFilter, Registry>,
    levels: Mutex<Levels>,
    /// Where the lines go, if not to stderr.
    file: Option<PathBuf>,
}

/// The level of the longest target that `target` begins with.
fn level_of(levels: &Levels, target: &str) -> &'static str {
    let fits = levels.iter().filter(|(known, _)| {
        let rest = target.strip_prefix(known.as_str());
        rest.is_some_and(|rest| known.is_empty() || rest.is_empty() || rest.starts_with("::"))
    });
    let best = fits.max_by_key(|(known, _)| known.len());
    match best.and_then(|(_, level)| named(level)) {
        Some("off") => "OFF",
        Some("warn") => "WARN",
        Some("info") => "INFO",
        Some("debug") => "DEBUG",
        Some("trace") => "TRACE",
        // What no directive names is shown from errors on.
        _ => "ERROR",
    }
}

impl LogLevels for FilteredLog {
    fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    fn level(&self, target: &str) -> &'static str {
        let levels = locks::lock(&self.levels);
        level_of(&levels, target)
    }

    fn set(&self, target: &str, level: &str) -> Result<(), String> {
        let level = named(level).ok_or_else(|| format!("no level is called {level:?}"))?;
        let mut levels = locks::lock(&self.levels);
        let mut next = levels.clone();
        next.insert(target.to_owned(), level.to_owned());
        if next.len() > TARGETS_MAX {
            return Err(format!(
                "{TARGETS_MAX} targets have levels of their own already"
            ));
        }
        let directives = next.iter().map(|(target, level)| match target.as_str() {
            "" => level.clone(),
            target => format!("{target}={level}"),
        });
        let text = directives.collect::<Vec<_>>().join(",");
        let filter = EnvFilter::try_new(&text).map_err(|error| error.to_string())?;
        self.handle
            .reload(filter)
            .map_err(|error| error.to_string())?;
        *levels = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_target_counts() {
        let levels = parsed("warn, hayloft_node=info,hayloft_node::xceiver=DEBUG,hayloft_store");
        let of = |target| level_of(&levels, target);
        assert_eq!(of("hayloft_rpc"), "WARN");
        assert_eq!(
            (of("hayloft_node"), of("hayloft_node::http")),
            ("INFO", "INFO")
        );
        assert_eq!(of("hayloft_node::xceiver::ops"), "DEBUG");
        assert_eq!(
            (of("hayloft_store"), of("hayloft_stores")),
            ("TRACE", "WARN")
        );
        assert_eq!(level_of(&parsed("off"), "x"), "OFF");
        assert_eq!(level_of(&Levels::new(), "x"), "ERROR");
    }

    #[test]
    fn a_level_is_set_while_it_runs_and_a_wrong_one_changes_nothing() {
        let (layer, handle) = reload::Layer::new(EnvFilter::new("info"));
        let log = FilteredLog {
            handle,
            levels: Mutex::new(parsed("info")),
            file: None,
        };
        let _subscriber = tracing_subscriber::registry().with(layer);
        log.set("hayloft_store", "DEBUG").expect("a level");
        assert_eq!(
            (log.level("hayloft_store::background"), log.level("")),
            ("DEBUG", "INFO")
        );
        log.set("", "FATAL").expect("a level");
        assert_eq!(
            (log.level("hayloft_node"), log.level("hayloft_store")),
            ("ERROR", "DEBUG")
        );
        let error = log.set("hayloft_node", "LOUD").expect_err("none");
        assert!(error.contains("LOUD"), "{error}");
        assert_eq!(log.level("hayloft_node"), "ERROR");
        let more = |n: usize| log.set(&format!("hayloft_{n}"), "INFO");
        let refused = (0..2 * TARGETS_MAX).filter(|n| more(*n).is_err());
        assert_eq!(
            refused.count(),
            TARGETS_MAX + 2,
            "what is told does not grow for ever"
        );
    }
}
