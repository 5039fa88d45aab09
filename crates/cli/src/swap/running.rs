//! Which node holds the data directories, by their locks and by its process.

use std::path::PathBuf;

use hayloft_io::RecordLock;
use serde::{Deserialize, Serialize};

/// Ends the name of the class that jsvc starts.
const JSVC_CLASS: &str = ".SecureDataNodeStarter";

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhichNode {
    Hayloft,
    Apache,
}

impl WhichNode {
    pub fn other(self) -> Self {
        match self {
            Self::Hayloft => Self::Apache,
            Self::Apache => Self::Hayloft,
        }
    }

    /// As sentences have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hayloft => "Hayloft",
            Self::Apache => "Apache's DataNode",
        }
    }
}

/// A node that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HoldingNode {
    pub node: WhichNode,
    pub pid: u32,
}

/// The node that holds one of the directories; `None` when none is held.
///
/// # Errors
/// In words: a lock cannot be read, or another program holds it.
pub fn running(volumes: &[PathBuf]) -> Result<Option<HoldingNode>, String> {
    for volume in volumes {
        let lock = volume.join("in_use.lock");
        let Some(note) = RecordLock::holder(&lock).map_err(|error| error.to_string())? else {
            continue;
        };
        let pid = note
            .split('@')
            .next()
            .and_then(|pid| pid.trim().parse().ok());
        let Some(pid) = pid else {
            return Err(format!("{} is held by {note:?}", lock.display()));
        };
        return match which(&command_of(pid)) {
            Some(node) => Ok(Some(HoldingNode { node, pid })),
            None => Err(format!(
                "{} is held by process {pid}, which is neither of the two nodes",
                lock.display()
            )),
        };
    }
    Ok(None)
}

/// Whether a process runs: one that has ended and was not waited for has no words.
pub fn lives(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| !words.is_empty())
}

/// The words that a process was started with.
fn command_of(pid: u32) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0);
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    words.map(text).collect()
}

/// Which it is, of a process that holds a directory's lock.
fn which(words: &[String]) -> Option<WhichNode> {
    // Whatever name the program was given.
    if words.get(1).is_some_and(|word| word == "node") {
        return Some(WhichNode::Hayloft);
    }
    let class = |word: &String| {
        word.starts_with("org.apache.hadoop.hdfs.server.datanode.")
            && (word.ends_with(".DataNode") || word.ends_with(JSVC_CLASS))
    };
    words.iter().any(class).then_some(WhichNode::Apache)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_known_by_their_words() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let of = |text: &str| which(&words(text));
        assert_eq!(
            of("/usr/bin/hayloft node --conf /c"),
            Some(WhichNode::Hayloft)
        );
        let java = "/jdk/bin/java -Dproc_datanode -Xmx1g \
            org.apache.hadoop.hdfs.server.datanode.DataNode";
        assert_eq!(of(java), Some(WhichNode::Apache));
        let jsvc = "jsvc.exec -user hdfs \
            org.apache.hadoop.hdfs.server.datanode.SecureDataNodeStarter";
        assert_eq!(of(jsvc), Some(WhichNode::Apache));
        assert_eq!(of("/usr/bin/hayloft top"), None);
        assert_eq!(
            of("vi org.apache.hadoop.hdfs.server.datanode.DataNode.java"),
            None
        );
    }

    #[test]
    fn directories_that_nothing_holds_have_no_node() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(running(&[dir.path().to_owned()]), Ok(None));
    }
}
