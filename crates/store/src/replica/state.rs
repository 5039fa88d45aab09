//! The states of a replica and every legal move between them, as one pure table.

use hayloft_wire::ids::ReplicaState;

/// What can happen to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// It is complete.
    Finalize,
    /// A client appends to it.
    Append,
    /// Another pipeline takes it over (streaming recovery, append recovery).
    TakeOver,
    /// A copy that was received from another node becomes part of a pipeline.
    Convert,
    /// Block recovery begins, or begins again with a higher recovery id.
    BeginRecovery,
    /// Block recovery has decided length and generation stamp.
    EndRecovery,
    /// It is found on the disk by a new process.
    Restart,
}

impl Move {
    /// Every move.
    #[cfg(test)]
    pub const ALL: [Self; 7] = [
        Self::Finalize,
        Self::Append,
        Self::TakeOver,
        Self::Convert,
        Self::BeginRecovery,
        Self::EndRecovery,
        Self::Restart,
    ];
}

/// The state after `step`, or `None` when it is not allowed in `state`.
///
/// Not in the table: a replica may be deleted in any state. A TEMPORARY replica does not outlive a
/// restart. A RUR one goes back to what it was before recovery began, which its directory tells.
#[must_use]
pub fn after(state: ReplicaState, step: Move) -> Option<ReplicaState> {
    use ReplicaState::{Finalized, Rbw, Rur, Rwr, Temporary};
    let next = match (state, step) {
        (Rbw | Temporary, Move::Finalize) => Finalized,
        (Finalized, Move::Append) => Rbw,
        (Rbw, Move::TakeOver) => Rbw,
        (Temporary, Move::Convert) => Rbw,
        (Finalized | Rbw | Rwr | Rur | Temporary, Move::BeginRecovery) => Rur,
        (Rur, Move::EndRecovery) => Finalized,
        (Finalized, Move::Restart) => Finalized,
        (Rbw | Rwr, Move::Restart) => Rwr,
        _ => return None,
    };
    Some(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ReplicaState::{Finalized, Rbw, Rur, Rwr, Temporary};
    use proptest::prelude::*;

    const STATES: [ReplicaState; 5] = [Finalized, Rbw, Rwr, Rur, Temporary];

    #[test]
    fn legal_moves_are_exactly_these() {
        let legal = [
            (Rbw, Move::Finalize, Finalized),
            (Temporary, Move::Finalize, Finalized),
            (Finalized, Move::Append, Rbw),
            (Rbw, Move::TakeOver, Rbw),
            (Temporary, Move::Convert, Rbw),
            (Finalized, Move::BeginRecovery, Rur),
            (Rbw, Move::BeginRecovery, Rur),
            (Rwr, Move::BeginRecovery, Rur),
            (Rur, Move::BeginRecovery, Rur),
            (Temporary, Move::BeginRecovery, Rur),
            (Rur, Move::EndRecovery, Finalized),
            (Finalized, Move::Restart, Finalized),
            (Rbw, Move::Restart, Rwr),
            (Rwr, Move::Restart, Rwr),
        ];
        for state in STATES {
            for step in Move::ALL {
                let expected = legal
                    .iter()
                    .find(|(s, m, _)| (*s, *m) == (state, step))
                    .map(|(_, _, next)| *next);
                assert_eq!(after(state, step), expected, "{state} {step:?}");
            }
        }
    }

    proptest! {
        /// Bytes are only added between a create, append or take-over and the next finalize.
        /// Nothing leads from FINALIZED to a writable state but Append.
        #[test]
        fn a_finalized_replica_is_only_written_after_an_append(
            steps in proptest::collection::vec(0..7_usize, 0..40),
        ) {
            let mut state = Rbw;
            for step in steps.into_iter().map(|n| Move::ALL[n]) {
                let Some(next) = after(state, step) else { continue };
                if state == Finalized && next == Rbw {
                    prop_assert_eq!(step, Move::Append);
                }
                if state == Rwr {
                    prop_assert!(matches!(next, Rwr | Rur));
                }
                state = next;
            }
        }
    }
}
