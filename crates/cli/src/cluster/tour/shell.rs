//! Stock client programs, one JVM each, and local files of passing use.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hayloft_cluster::hadoop::class;
use hayloft_console::progress::{ProgressStep, say};

use crate::cluster::start_processes::Launcher;
use crate::error::CliError;

/// Everything of the tour is below this.
pub(super) const ROOT: &str = "/hayloft";

/// The list of files that is kept beside a copy.
pub(super) fn listing_of(target: &str) -> String {
    format!("{target}.files.txt")
}

/// A step to move, and how far it is.
pub(super) type Progress<'a> = Option<(&'a ProgressStep, &'a dyn Fn() -> u64)>;

/// Stock client programs, one JVM each.
pub(super) struct Shell<'a, 'b> {
    pub(super) launcher: &'a Launcher<'b>,
}

impl Shell<'_, '_> {
    pub(super) fn fs(&self, args: &[&str], progress: Progress<'_>) -> Result<(), CliError> {
        self.run("fs", class::FS_SHELL, args, progress)
    }

    pub(super) fn run(
        &self,
        name: &str,
        main: &str,
        args: &[&str],
        progress: Progress<'_>,
    ) -> Result<(), CliError> {
        let spawn = self
            .launcher
            .hadoop
            .java(name, &self.launcher.client_jvm(), main, args);
        // The log tells about this run only.
        let _ = std::fs::remove_file(&spawn.log);
        let mut process = spawn.start()?;
        // A JVM takes a second to start: even a small command is worth a word.
        let mut own = ProgressStep::short(format!("stock {name} {}", args.join(" ")));
        let status = loop {
            match process.wait(Duration::from_millis(200)) {
                Ok(status) => break status,
                Err(_) => match progress {
                    Some((step, position)) => step.at(position()),
                    None => own.tick(),
                },
            }
        };
        own.done("");
        if status.success() {
            return Ok(());
        }
        Err(CliError::from(
            process.error(format!("{} ended with {status}", args.join(" "))),
        ))
    }

    /// A local path for passing use.
    pub(super) fn scratch(&self, name: &str) -> PathBuf {
        let dir = self.launcher.state.path().join("scratch");
        if let Err(error) = std::fs::create_dir_all(&dir) {
            say(&format!("cannot create {}: {error}", dir.display()));
        }
        dir.join(name)
    }
}

/// Bytes of a file or of everything below a directory that may be growing.
pub(super) fn size_of(path: &Path) -> u64 {
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            entries.map(|entry| size_of(&entry.path())).sum()
        }
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    }
}

pub(super) fn remove(path: &Path) -> Result<(), CliError> {
    let removed = if path.is_dir() {
        std::fs::remove_dir_all(path)
    } else {
        std::fs::remove_file(path)
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(CliError::file("remove", path)(error))
        }
        _ => Ok(()),
    }
}
