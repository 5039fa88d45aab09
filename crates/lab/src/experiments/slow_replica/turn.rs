//! One turn: a healthy cluster, something that becomes slow, and readers before and after.

use std::time::{Duration, Instant};

use super::super::testbeds::bring_up;
use super::hosts::{
    AVOID, CLIENTS, EXCLUDE, SEARCH_S, SLOW, SLOW_DISKS, SLOWER, described, host, slower,
};
use super::lists::{Listed, SlowList, until_listed};
use super::reads::{Readers, write};
use crate::net;
use crate::runner::PeerTurn;
use crate::runner::record::PeerFigures;
use crate::up::Testbed;
use hayloft_testkit::driver::Driver;
use hayloft_testkit::error::{Result, TestkitError};

/// The part with a slow link.
pub(super) const LINK: &str = "link";
/// The part with a node whose disks are slow.
pub(super) const DISKS: &str = "disks";
/// The part with one slow disk in a node.
pub(super) const ONE_DISK: &str = "one-disk";

/// The row before anything is slow.
pub(super) const HEALTHY: &str = "healthy";
/// Rows of a slow link.
pub(super) const LINK_OFF: &str = "slow link, avoidance off";
pub(super) const LINK_ON: &str = "slow link, avoidance on";
/// Rows of a node whose disks are slow.
pub(super) const DISKS_OFF: &str = "slow disks, avoidance off";
pub(super) const DISKS_ON: &str = "slow disks, avoidance on";
/// Rows of one slow disk.
const ONE_OFF: &str = "one slow disk";
const ONE_HEDGED: &str = "one slow disk, hedged reads";
const ONE_AVOIDED: &str = "one slow disk, avoidance on";
const NEW_OFF: &str = "written since";
const NEW_ON: &str = "written since, slow disk excluded";

/// Where files lie that are there before anything is slow, and those that are written since.
const BEFORE: &str = "/before";
const SINCE: &str = "/since";
const SINCE_EXCLUDED: &str = "/since-excluded";
/// The longest wait for the NameNode's list: longer than a stock node's first window. In a look: as
/// Hayloft nodes need.
const LISTED_LIMIT: Duration = Duration::from_secs(420);
const LISTED_LIMIT_OF_A_LOOK: Duration = Duration::from_secs(120);
/// Until a search, a heartbeat and the NameNode's look are over.
const TOLD: Duration = Duration::from_secs(SEARCH_S as u64 + 3);

/// What becomes slow in the slow host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slowed {
    /// Its link.
    Link,
    /// The first so many of its disks.
    Disks(usize),
}

/// A cluster whose files are written.
struct SlowReplicaLab {
    testbed: Testbed,
    client: Driver,
    /// When something became slow.
    since: Instant,
}

/// Measures a part with nodes of a testbed's `kind`.
///
/// # Errors
/// When the cluster does not come up, or a client fails.
pub(super) fn measure(turn: &mut PeerTurn<'_>, part: &str, kind: &str) -> Result<()> {
    let testbed = bring_up(turn, described(kind, turn.options))?;
    let client = testbed.client(CLIENTS[0])?;
    turn.tell("writing the files");
    write(&client, BEFORE, turn.options)?;
    let mut lab = SlowReplicaLab {
        testbed,
        client,
        since: Instant::now(),
    };
    let healthy = lab.read(turn, HEALTHY, BEFORE)?;
    let mut listed = Listed::default();
    listed.note(&SlowList::Nodes.ask(&lab.testbed)?, Duration::ZERO);
    turn.give_in(HEALTHY, "list", listed.figures());
    match part {
        LINK => lab.slow_node(turn, Slowed::Link, [LINK_OFF, LINK_ON]),
        DISKS => lab.slow_node(turn, Slowed::Disks(SLOW_DISKS), [DISKS_OFF, DISKS_ON]),
        _ => lab.slow_disk(turn, &healthy),
    }
}

impl SlowReplicaLab {
    /// A node becomes slow as a whole: readers before and after the NameNode sends them elsewhere.
    fn slow_node(
        &mut self,
        turn: &mut PeerTurn<'_>,
        what: Slowed,
        [off, on]: [&str; 2],
    ) -> Result<()> {
        self.slow_down(what)?;
        self.read(turn, off, BEFORE)?;
        let listed = self.listed(turn, SlowList::Nodes, on)?;
        if listed.after_s.is_none() {
            // There is nothing to avoid: what readers wait for then says nothing of avoidance.
            turn.tell(&format!(
                "{on}: the NameNode lists no slow node, so nothing is read"
            ));
            return self.look_again(turn, on, listed);
        }
        self.avoid(true)?;
        self.read(turn, on, BEFORE)?;
        self.look_again(turn, on, listed)
    }

    /// One of a node's disks becomes slow: what each remedy gives alone.
    fn slow_disk(&mut self, turn: &mut PeerTurn<'_>, healthy: &PeerFigures) -> Result<()> {
        self.slow_down(Slowed::Disks(1))?;
        self.read(turn, ONE_OFF, BEFORE)?;
        turn.tell(ONE_HEDGED);
        // A client that hedges once does so for all of its files.
        let hedging = self.testbed.client(CLIENTS[1])?;
        let hedge = hedge_after(healthy)?;
        let readers = Readers {
            client: &hedging,
            hedge: Some(hedge),
        };
        let read = readers.measure((&self.testbed, BEFORE, turn.round), turn.options)?;
        let hedge_ms = hedge.as_secs_f64() * 1000.0;
        turn.give_in(ONE_HEDGED, "read", read.with("hedge_ms", hedge_ms));
        drop(hedging);

        self.listed(turn, SlowList::Disks, ONE_OFF)?;
        let mut nodes = Listed::default();
        nodes.note(&SlowList::Nodes.ask(&self.testbed)?, self.since.elapsed());
        self.avoid(true)?;
        self.read(turn, ONE_AVOIDED, BEFORE)?;
        self.look_again(turn, ONE_AVOIDED, nodes)?;
        self.avoid(false)?;

        self.written(turn, NEW_OFF, SINCE)?;
        self.testbed
            .reconfigure_node(&self.client, SLOW, (EXCLUDE, "1"))?;
        std::thread::sleep(TOLD);
        self.written(turn, NEW_ON, SINCE_EXCLUDED)
    }

    fn slow_down(&mut self, what: Slowed) -> Result<()> {
        let described = self.testbed.described();
        match what {
            Slowed::Link => {
                let mbit = described.network.link_mbit / SLOWER;
                net::set_link(&described.name, &host(SLOW), mbit)?;
            }
            Slowed::Disks(count) => {
                let node = &self.testbed.nodes()[SLOW];
                let specs = described.hosts().nth(SLOW);
                let specs = specs.and_then(|(_, host)| host.nodes.first());
                let specs = specs.map_or(&[][..], |node| &node.disks);
                for (disk, spec) in node.disks.iter().zip(specs).take(count) {
                    disk.become_like(&slower(spec))?;
                }
            }
        }
        self.since = Instant::now();
        Ok(())
    }

    /// The client without hedges reads; the figures, which are given in `row`, too.
    fn read(&self, turn: &mut PeerTurn<'_>, row: &str, path: &str) -> Result<PeerFigures> {
        turn.tell(row);
        let readers = Readers {
            client: &self.client,
            hedge: None,
        };
        let figures = readers.measure((&self.testbed, path, turn.round), turn.options)?;
        turn.give_in(row, "read", figures.clone());
        Ok(figures)
    }

    /// Files are written anew, and read.
    fn written(&self, turn: &mut PeerTurn<'_>, row: &str, path: &str) -> Result<()> {
        turn.tell(&format!("writing: {row}"));
        let mbs = write(&self.client, path, turn.options)?;
        self.read(turn, row, path)?;
        turn.give_in(row, "write", PeerFigures::of([("mbs", mbs)]));
        Ok(())
    }

    /// Clients write until the NameNode lists what is slow; given in `row`.
    fn listed(&self, turn: &mut PeerTurn<'_>, list: SlowList, row: &str) -> Result<Listed> {
        turn.tell(&format!("waiting for the NameNode's list: {row}"));
        let limit = match turn.options.first_counts {
            true => LISTED_LIMIT_OF_A_LOOK,
            false => LISTED_LIMIT,
        };
        let at = (self.since, self.since.elapsed() + limit);
        let listed = until_listed((&self.testbed, &self.client), list, at)?;
        if list == SlowList::Disks {
            turn.give_in(row, "disk", listed.figures());
        }
        Ok(listed)
    }

    /// Has readers sent away from slow nodes, or not, and waits until the NameNode does.
    fn avoid(&mut self, yes: bool) -> Result<()> {
        let value = if yes { "true" } else { "false" };
        self.testbed
            .reconfigure_namenode(&self.client, (AVOID, value))?;
        std::thread::sleep(TOLD);
        Ok(())
    }

    /// Gives what was listed, with what is listed now.
    fn look_again(&self, turn: &mut PeerTurn<'_>, row: &str, mut listed: Listed) -> Result<()> {
        listed.note(&SlowList::Nodes.ask(&self.testbed)?, self.since.elapsed());
        turn.give_in(row, "list", listed.figures());
        Ok(())
    }
}

/// A reader asks another node after twice the median of a healthy cluster's reads.
fn hedge_after(healthy: &PeerFigures) -> Result<Duration> {
    let median = healthy.get("p50_ms");
    let missing = || TestkitError::Talk("the healthy cluster's reads have no median".into());
    let millis = (2.0 * median.ok_or_else(missing)?).round();
    Ok(Duration::from_secs_f64(millis / 1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_hedges_after_twice_the_median() {
        let healthy = PeerFigures::of([("p50_ms", 31.2)]);
        let hedge = hedge_after(&healthy).expect("there is a median");
        assert_eq!(hedge, Duration::from_millis(62));
        assert!(hedge_after(&PeerFigures::default()).is_err());
    }
}
