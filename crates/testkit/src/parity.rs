//! What `hayloft parity` says of a node.

use std::process::Command;

use serde_json::Value;

use crate::error::{Result, TestkitError};
use crate::hadoop::hayloft_binary;
use crate::node::Node;

/// Runs `hayloft parity` with these arguments on a node's configuration: its exit code, and its
/// answer, `null` where there is none.
///
/// # Errors
/// [`TestkitError::File`] when the command cannot be run.
pub fn said(node: &Node, arguments: &[&str]) -> Result<(Option<i32>, Value)> {
    let binary = hayloft_binary()?;
    let ran = Command::new(&binary)
        .arg("parity")
        .args(arguments)
        .args(["--json", "--conf"])
        .arg(node.conf_dir())
        .output()
        .map_err(TestkitError::file("running", &binary))?;
    let answer = serde_json::from_slice(&ran.stdout).unwrap_or_default();
    Ok((ran.status.code(), answer))
}
