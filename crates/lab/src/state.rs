//! What is remembered of a testbed that stays, for the next command.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::describe::Description;
use super::running::RunningNode;
use hayloft_testkit::error::{Result, TestkitError};

/// Version of the file.
const FORMAT: u32 = 1;
const FILE: &str = "state.json";

/// The contents of `state.json`.
#[derive(Deserialize)]
struct State {
    format: u32,
    described: Description,
    nodes: Vec<RunningNode>,
}

/// Remembers a testbed with its files in `dir`.
pub(super) fn write(dir: &Path, described: &Description, nodes: &[RunningNode]) -> Result<()> {
    #[derive(Serialize)]
    struct Current<'a> {
        format: u32,
        described: &'a Description,
        nodes: &'a [RunningNode],
    }
    let path = dir.join(FILE);
    let state = Current {
        format: FORMAT,
        described,
        nodes,
    };
    let text = serde_json::to_string_pretty(&state)
        .map_err(|e| TestkitError::Talk(format!("writing {}: {e}", path.display())))?;
    std::fs::write(&path, text).map_err(TestkitError::file("writing", path))
}

/// What was described and the nodes that were started.
pub(super) fn read(dir: &Path) -> Result<(Description, Vec<RunningNode>)> {
    let path = dir.join(FILE);
    let text = std::fs::read_to_string(&path).map_err(TestkitError::file("reading", &path))?;
    let bad = |why: String| {
        TestkitError::Talk(format!(
            "{}: {why}: take the testbed down and bring it up again",
            path.display()
        ))
    };
    let state: State = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
    if state.format != FORMAT {
        return Err(bad(format!("version {} instead of {FORMAT}", state.format)));
    }
    Ok((state.described, state.nodes))
}

/// Forgets it; what is not there is no error.
pub(super) fn remove(dir: &Path) {
    let _not_there = std::fs::remove_file(dir.join(FILE));
}
