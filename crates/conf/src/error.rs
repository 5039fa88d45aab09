//! Why a configuration cannot be used.

use std::path::PathBuf;

/// A configuration that cannot be used. Each message says what is wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The configuration directory holds none of the files that are read.
    #[error(
        "no core-site.xml or hdfs-site.xml in {}: name the directory that holds them with --conf \
            or HADOOP_CONF_DIR",
        dir.display()
    )]
    NoFiles {
        /// Directory that was looked in.
        dir: PathBuf,
    },
    /// A file could not be read.
    #[error("cannot read configuration file {}{}: \
        {source}", path.display(), from_suffix(included_from.as_deref()))]
    Read {
        /// File that was being read.
        path: PathBuf,
        /// `file:line` of the include that names it, if one does.
        included_from: Option<String>,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file is not the XML that Hadoop writes.
    #[error("{}:{line}: {what}", path.display())]
    Syntax {
        /// File that was being read.
        path: PathBuf,
        /// Line, counted from 1.
        line: usize,
        /// What is wrong there.
        what: String,
    },
    /// A `${...}` that cannot be replaced.
    #[error("{key} ({place}): {what}")]
    Substitution {
        /// Key whose value was being expanded.
        key: String,
        /// Where that value was set.
        place: String,
        /// What is wrong with it.
        what: String,
    },
    /// A value outside what its key allows.
    #[error("{key} = '{value}' ({place}): must be {allowed}")]
    BadValue {
        /// Key as the operator wrote it.
        key: String,
        /// Value after substitution.
        value: String,
        /// Where it was set.
        place: String,
        /// What is allowed.
        allowed: String,
    },
    /// A combination of keys that cannot work.
    #[error("{what}")]
    Conflict {
        /// What does not fit, with the keys' names, and what to do.
        what: String,
    },
    /// A key by the name that it had before.
    #[error(
        "{key} ({place}) is called {now} now: rename it, or the node would run without the parity \
         that it asks for"
    )]
    Renamed {
        /// Key as the operator wrote it.
        key: String,
        /// Where it was set.
        place: String,
        /// What it is called now.
        now: String,
    },
    /// Protection is demanded that this version does not have.
    #[error(
        "{key} = '{value}' ({place}) demands {what}, which this version does not have: \
         it refuses to serve data unprotected; {instead}"
    )]
    Unprotected {
        /// Key that demands it.
        key: &'static str,
        /// Its value.
        value: String,
        /// Where it was set.
        place: String,
        /// The protection, in words.
        what: &'static str,
        /// What to do.
        instead: &'static str,
    },
}

fn from_suffix(included_from: Option<&str>) -> String {
    included_from.map_or_else(String::new, |place| format!(" (included from {place})"))
}
