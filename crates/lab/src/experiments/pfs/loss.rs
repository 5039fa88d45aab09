//! All servers but one are killed: every byte of every file is read from the copy that is left.

use serde_json::json;

use super::layouts::{self, LAYOUTS};
use super::session::{Hosts, Session, Way};
use crate::runner::record::PeerFigures;
use crate::runner::{PeerTurn, Run};
use hayloft_testkit::error::{Result, TestkitError};

/// What the part is called.
pub(super) const PART: &str = "loss";
/// Servers, and as many copies.
const SERVERS: usize = 3;

/// Carries it out.
///
/// # Errors
/// Also when a byte differs or cannot be read.
pub(super) fn carry_out(run: &mut Run<'_>) -> Result<()> {
    let row = SERVERS.to_string();
    run.rounds(
        PART,
        &[(row.as_str(), "")],
        &mut |turn, _| match turn.counts {
            true => measure(turn),
            // There is nothing to warm.
            false => Ok(()),
        },
    )
}

fn measure(turn: &mut PeerTurn<'_>) -> Result<()> {
    let names: Vec<String> = (0..SERVERS).map(|at| format!("s{at}")).collect();
    let described = layouts::described(turn.options, SERVERS, true);
    let dir = turn.dir.clone();
    let mut hosts = Hosts::start(described, &names, &dir, &mut |what| turn.tell(what))?;
    let mib = u64::from(turn.mib());
    let ways = LAYOUTS.map(|layout| Way::Copies(layout, SERVERS));
    let file =
        |way: Way| move |at: usize| (format!("{}/c{at}", way.name()), json!({"bytes": mib << 20}));
    let mut session = Session::begin(&hosts)?;
    for way in ways {
        session.all((way, "write"), "writeStreams", file(way))?;
    }
    drop(session);
    turn.tell("killing all servers but one");
    hosts.moose.kill_all_but(SERVERS - 1)?;
    let mut session = Session::begin(&hosts)?;
    for way in ways {
        turn.tell(&format!("reading what is left, {}", way.name()));
        let read = session.all((way, "read"), "readStreams", file(way))?;
        let wanted = mib * SERVERS as u64;
        if read != wanted << 20 {
            return Err(TestkitError::Expectation(format!(
                "{}: {read} bytes were read with one server left",
                way.name()
            )));
        }
        #[expect(clippy::cast_precision_loss, reason = "a few files")]
        let figures = PeerFigures::of([("files", SERVERS as f64), ("mib", wanted as f64)]);
        turn.give_of(way.name(), figures);
    }
    Ok(())
}
