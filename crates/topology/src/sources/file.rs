//! A file that an administrator keeps: `NODE RACK` lines, or `NODE RACK HOST`.
//!
//! NODE is a name or address of this machine, HOST the machine that it runs on. `#` starts a
//! comment. One file may serve all nodes.

use std::path::PathBuf;

use crate::files::{FILE_LIMIT, read_file};
use crate::http::HttpAsker;
use crate::keys::NodeKeys;
use crate::place::Whereabouts;
use crate::source::{SourceSilence, TopologySource, named};

/// Looks this machine up in a file.
pub(crate) struct PlaceFile {
    path: PathBuf,
    keys: NodeKeys,
}

impl PlaceFile {
    pub(crate) fn new(path: &str, keys: &NodeKeys) -> Self {
        Self {
            path: PathBuf::from(path),
            keys: keys.clone(),
        }
    }
}

impl TopologySource for PlaceFile {
    fn name(&self) -> &'static str {
        "file"
    }

    fn ask(&self, _: &HttpAsker) -> Result<Whereabouts, SourceSilence> {
        let text = read_file(&self.path, FILE_LIMIT)?;
        let mut found: Option<Whereabouts> = None;
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let Some(node) = words.next().filter(|node| self.keys.has(node)) else {
                continue;
            };
            let at = format!("line {} of {}", index + 1, self.path.display());
            let said = |problem: &str| SourceSilence(format!("{at}: {problem}"));
            let rack = words.next().ok_or_else(|| said("no rack"))?;
            let rack = rack.parse().map_err(|error: String| said(&error))?;
            let host = words.next().map(|host| named(&at, host)).transpose()?;
            if words.next().is_some() {
                return Err(said("more than NODE RACK HOST"));
            }
            let how = vec![format!("{at} places {node}")];
            let place = Whereabouts { host, rack, how };
            if let Some(before) = &found
                && (&before.rack, &before.host) != (&place.rack, &place.host)
            {
                return Err(said("another line says something else"));
            }
            found.get_or_insert(place);
        }
        let none = || format!("{} has no line for {}", self.path.display(), self.keys);
        found.ok_or_else(|| none().into())
    }
}
