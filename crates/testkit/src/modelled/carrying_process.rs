//! A process that carries a disk with a volatile cache: this very program, run again.
//!
//! Tests are such programs, so they need no binary that knows of volatile disks. What
//! [`ModelledDisk`](super::ModelledDisk) asks for is the same as of `hayloft-lab disk`.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode};

use super::modelling_process::{Carried, HostedDisk};
use crate::error::{Result, TestkitError};

/// The first argument of a program that shall carry a disk; the second is the disk as JSON.
const CARRY: &str = "carry-volatile-disk";

/// The command that has this program carry `disk`.
///
/// # Errors
/// When this program's file cannot be found.
pub(super) fn command(disk: &HostedDisk) -> Result<Command> {
    let program = std::env::current_exe().map_err(TestkitError::file("finding", "this program"))?;
    let disk = serde_json::to_string(disk)
        .map_err(|e| TestkitError::Talk(format!("the disk to carry: {e}")))?;
    let mut command = Command::new(program);
    command.args([CARRY, &disk]);
    Ok(command)
}

/// Carries a disk until stdin ends, if this process was started for that; `None` if it was not.
/// The first call of `main` in programs that use [`volatile`](super::ModelledDisk::volatile).
#[must_use]
pub fn carry_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(CARRY) {
        return None;
    }
    let disk = arguments.next().unwrap_or_default();
    Some(match carry(&disk) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    })
}

fn carry(disk: &str) -> Result<()> {
    let disk: HostedDisk = serde_json::from_str(disk)
        .map_err(|e| TestkitError::Talk(format!("the disk to carry: {e}")))?;
    // What killed carriers left. What stays is no concern of this disk.
    super::sweep()?;
    let carried = Carried::start_volatile(&disk)?;
    let place = serde_json::to_string(carried.place())
        .map_err(|e| TestkitError::Talk(format!("the place of the disk: {e}")))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{place}")
        .and_then(|()| out.flush())
        .map_err(TestkitError::file("writing to", Path::new("stdout")))?;
    // The parent says nothing; its end ends this.
    let _ = std::io::copy(&mut std::io::stdin().take(u64::MAX), &mut std::io::sink());
    carried.stop().map(drop)
}
