//! Where the value of a property came from.

use std::fmt;
use std::path::PathBuf;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// No file sets it.
    Default,
    /// A configuration file; the line is that of its `<property>`.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Line, counted from 1.
        line: usize,
    },
    /// `-D` on the command line.
    CommandLine,
    /// Changed while the node ran.
    Reconfigured,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::CommandLine => f.write_str("command line"),
            Self::Reconfigured => f.write_str("reconfigured"),
        }
    }
}
