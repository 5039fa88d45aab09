//! What nodes know each other by: every node but the slow one sends blocks to each other node in
//! turn. Each is the first of one pipeline and the last of about one, so all are loaded alike.

use std::time::{Duration, Instant};

use serde_json::json;

use super::hosts::{NODES, SLOW};
use crate::up::Testbed;
use crate::workload::PHASE_LIMIT;
use hayloft_testkit::driver::{Driver, PendingCall};
use hayloft_testkit::error::{Result, TestkitError};

/// Where clients write.
const LOAD: &str = "/load";
/// Bytes of a file, which is one block: several times what a node takes before it waits for its
/// disk.
pub(super) const BLOCK: u64 = 32 << 20;
/// Between two looks.
const EVERY: Duration = Duration::from_millis(500);
/// Between two looks at writers.
const TICK: Duration = Duration::from_millis(20);

/// A node that sends blocks to the others in turn.
struct Sender {
    node: usize,
    /// Blocks that it has sent.
    sent: usize,
    writing: PendingCall,
}

/// To whom a node sends the block with this number.
fn target(node: usize, number: usize) -> usize {
    (node + 1 + number % (NODES - 1)) % NODES
}

/// The file of such a block.
fn path(node: usize, number: usize) -> String {
    format!("{LOAD}/n{node}/b{number}")
}

/// Has `client` write by way of the nodes until `enough` says so, at most until `deadline`. What it
/// wrote is gone then.
///
/// # Errors
/// When a write fails, and those of `enough`.
pub(super) fn until(
    (testbed, client): (&Testbed, &Driver),
    deadline: Instant,
    enough: &mut dyn FnMut() -> Result<bool>,
) -> Result<()> {
    let begin = |node: usize, number: usize| {
        let address = |at: usize| testbed.nodes()[at].address.as_str();
        let favored = [address(node), address(target(node, number))];
        let request = json!({
            "path": path(node, number), "streams": 1, "bytes": BLOCK, "blockSize": BLOCK,
            "replication": favored.len(), "favored": favored,
        });
        client.begin("writeStreams", request)
    };
    let mut senders = Vec::new();
    for node in (0..NODES).filter(|node| *node != SLOW) {
        let writing = begin(node, 0)?;
        senders.push(Sender {
            node,
            sent: 0,
            writing,
        });
    }
    let mut looked = Instant::now();
    while Instant::now() < deadline {
        for sender in &mut senders {
            if sender.writing.wait_briefly(Duration::ZERO)?.is_some() {
                let done = json!({"path": path(sender.node, sender.sent)});
                client.call("delete", done)?;
                sender.sent += 1;
                sender.writing = begin(sender.node, sender.sent)?;
            }
        }
        if looked.elapsed() >= EVERY {
            if enough()? {
                break;
            }
            looked = Instant::now();
        }
        std::thread::sleep(TICK);
    }
    for sender in senders {
        let ended = sender.writing.wait_at_most(PHASE_LIMIT);
        ended.map_err(|error| {
            let way = format!("{} to {}", sender.node, target(sender.node, sender.sent));
            TestkitError::Talk(format!("a block on its way from node {way}: {error}"))
        })?;
    }
    client.call("delete", json!({"path": LOAD}))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_node_sends_to_each_other_one_before_any_comes_again() {
        for node in 0..NODES {
            let all: BTreeSet<usize> = (0..NODES - 1).map(|n| target(node, n)).collect();
            assert!(all.len() == NODES - 1 && !all.contains(&node), "{all:?}");
            assert_eq!(target(node, NODES - 1), target(node, 0));
        }
    }

    #[test]
    fn each_node_is_the_last_of_one_pipeline_at_a_time() {
        for number in 0..NODES {
            let last: BTreeSet<usize> = (0..NODES).map(|node| target(node, number)).collect();
            assert_eq!(last.len(), NODES);
        }
    }
}
