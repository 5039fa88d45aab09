//! What nodes know each other by: some nodes send blocks to each other node in turn, the slow one
//! included. No two send to the same node at a time, unless it keeps them waiting.

use std::time::{Duration, Instant};

use serde_json::json;

use super::hosts::{CLIENTS, NODES, SLOW};
use crate::up::Testbed;
use hayloft_testkit::driver::{Driver, PendingCall};
use hayloft_testkit::error::Result;

/// Where clients write.
const LOAD: &str = "/load";
/// Bytes of a file, which is one block: several times what a node takes before it waits for its
/// disk.
pub(super) const BLOCK: u64 = 32 << 20;
/// Nodes that send: those that come after the slow one.
pub(super) const SENDERS: usize = 4;
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

/// Has clients write by way of the nodes until `enough` says so, at most until `deadline`. Then the
/// writers are killed, and `client` removes what they wrote.
///
/// # Errors
/// When a writer does not start or fails, and those of `enough`.
pub(super) fn until(
    (testbed, client): (&Testbed, &Driver),
    deadline: Instant,
    enough: &mut dyn FnMut() -> Result<bool>,
) -> Result<()> {
    let writer = testbed.client(CLIENTS[1])?;
    let begin = |node: usize, number: usize| {
        let address = |at: usize| testbed.nodes()[at].address.as_str();
        let favored = [address(node), address(target(node, number))];
        let request = json!({
            "path": path(node, number), "streams": 1, "bytes": BLOCK, "blockSize": BLOCK,
            "replication": favored.len(), "favored": favored,
        });
        writer.begin("writeStreams", request)
    };
    let mut senders = Vec::new();
    for node in (1..=SENDERS).map(|after| SLOW + after) {
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
                writer.call("delete", done)?;
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
    // Those that wait for what is slow would do so for minutes.
    writer.kill()?;
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
    fn no_two_nodes_send_to_the_same_one() {
        for number in 0..NODES {
            let last = (1..=SENDERS).map(|after| target(SLOW + after, number));
            assert_eq!(last.collect::<BTreeSet<usize>>().len(), SENDERS);
        }
    }
}
