//! Loop devices for tests of plug-ins, which want root.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device over `file`, or why there is none.
pub fn attach(file: &Path) -> Result<PathBuf, String> {
    let mut command = Command::new("losetup");
    match command.args(["--find", "--show"]).arg(file).output() {
        Ok(ran) if ran.status.success() => Ok(String::from_utf8_lossy(&ran.stdout)
            .trim()
            .to_owned()
            .into()),
        ran => Err(format!("no loop device: {ran:?}")),
    }
}

/// Takes the device away once no process has it open any more.
pub fn detach(device: &Path) {
    let _ = Command::new("losetup").arg("-d").arg(device).status();
}
