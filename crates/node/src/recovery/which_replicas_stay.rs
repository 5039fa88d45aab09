//! Which replicas of a broken block are kept, and how long the block becomes. Pure functions over
//! what the participants answered; the rules are Apache's, because replicas of one block may be
//! recovered by nodes of either kind.

use hayloft_wire::ids::{Block, ReplicaState};

use hayloft_client::stripe::Stripe;

/// What one location said when the recovery began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// No answer, or an error.
    Failed,
    /// It has no replica.
    Absent,
    /// Its replica, with the length on disk and the state before the recovery.
    Replica(Replica),
}

/// A replica as its node described it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Replica {
    /// Id, generation stamp and length that the node holds.
    pub(super) block: Block,
    /// State before the recovery began.
    pub(super) state: ReplicaState,
}

/// How a contiguous block goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ContiguousPlan {
    /// No node has any byte of it: it leaves the file.
    Delete,
    /// The replicas at these locations become `length` bytes long and finalized; the others are
    /// left behind with their old generation stamp.
    Sync {
        /// Indices into the answers.
        participants: Vec<usize>,
        /// New length of the block in bytes.
        length: u64,
    },
}

/// Why a block cannot be recovered now. The NameNode tries again later.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unrecoverable {
    /// No node answered.
    #[error("none of its {locations} locations answered")]
    AllFailed {
        /// How many there are.
        locations: usize,
    },
    /// There are replicas, but none that a recovery may use.
    #[error("its {found} replica(s) are all in a state worse than RWR")]
    NoneUsable {
        /// How many there are.
        found: usize,
    },
    /// Finalized replicas must be equal.
    #[error("finalized replicas differ in length ({one} and {other} bytes)")]
    FinalizedDiffer {
        /// Length of the one.
        one: u64,
        /// Length of the other.
        other: u64,
    },
    /// Too few internal blocks of a striped group.
    #[error("{found} internal blocks of the group can be used, {needed} are needed")]
    TooFewInternalBlocks {
        /// How many there are.
        found: usize,
        /// How many data blocks the group has.
        needed: usize,
    },
}

/// A replica takes part when it is not older than the block and holds at least one byte.
fn is_candidate(block: Block, replica: &Replica) -> bool {
    replica.block.generation_stamp >= block.generation_stamp && replica.block.num_bytes > 0
}

/// FINALIZED before RBW before RWR; nothing else is usable. Smaller is better.
fn rank(state: ReplicaState) -> Option<u8> {
    match state {
        ReplicaState::Finalized => Some(0),
        ReplicaState::Rbw => Some(1),
        ReplicaState::Rwr => Some(2),
        ReplicaState::Rur | ReplicaState::Temporary => None,
    }
}

/// Decides about a contiguous block. `truncate_to` is the length that a truncate asks for.
///
/// - A finalized replica was acknowledged as complete: its length is the block's, and finalized
///   replicas must agree. A replica being written takes part when it is exactly as long.
/// - Without one, all replicas being written (RBW) take part at their smallest length: every
///   acknowledged byte is in each of them.
/// - Only when there is none either, replicas that a restart interrupted (RWR) do, likewise.
pub(super) fn plan_contiguous(
    block: Block,
    answers: &[Answer],
    truncate_to: Option<u64>,
) -> Result<ContiguousPlan, Unrecoverable> {
    if answers.iter().all(|answer| *answer == Answer::Failed) {
        return Err(Unrecoverable::AllFailed {
            locations: answers.len(),
        });
    }
    let candidates: Vec<(usize, Replica)> = answers
        .iter()
        .enumerate()
        .filter_map(|(index, answer)| match answer {
            Answer::Replica(replica) if is_candidate(block, replica) => Some((index, *replica)),
            _ => None,
        })
        .collect();
    let best = candidates
        .iter()
        .filter_map(|(_, replica)| rank(replica.state))
        .min();
    let Some(best) = best else {
        return if candidates.is_empty() {
            Ok(ContiguousPlan::Delete)
        } else {
            Err(Unrecoverable::NoneUsable {
                found: candidates.len(),
            })
        };
    };
    let finalized = finalized_length(&candidates)?;
    let takes_part = |replica: &Replica| match finalized {
        Some(length) => match replica.state {
            ReplicaState::Finalized => true,
            ReplicaState::Rbw => replica.block.num_bytes == length,
            _ => false,
        },
        None => rank(replica.state) == Some(best),
    };
    let chosen = || candidates.iter().filter(|(_, replica)| takes_part(replica));
    let shortest = chosen().map(|(_, replica)| replica.block.num_bytes).min();
    Ok(ContiguousPlan::Sync {
        participants: chosen().map(|(index, _)| *index).collect(),
        length: truncate_to
            .or(shortest)
            .expect("the best candidate takes part"),
    })
}

fn finalized_length(candidates: &[(usize, Replica)]) -> Result<Option<u64>, Unrecoverable> {
    let mut lengths = candidates
        .iter()
        .filter(|(_, replica)| replica.state == ReplicaState::Finalized)
        .map(|(_, replica)| replica.block.num_bytes);
    let Some(one) = lengths.next() else {
        return Ok(None);
    };
    match lengths.find(|other| *other != one) {
        Some(other) => Err(Unrecoverable::FinalizedDiffer { one, other }),
        None => Ok(Some(one)),
    }
}

/// How a striped group goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StripedPlan {
    /// No whole stripe was written: the group leaves the file. The internal blocks of these
    /// locations are named to the NameNode.
    Delete {
        /// Indices into the answers.
        named: Vec<usize>,
    },
    /// The group keeps its whole stripes.
    Sync {
        /// Indices into the answers; one for each internal block.
        participants: Vec<usize>,
        /// New length of the group in data bytes.
        group_length: u64,
        /// New length of each internal block; equal, because only whole stripes are kept.
        internal_length: u64,
    },
}

/// Decides about a striped group. Several locations may hold the same internal block; the longest
/// replica of it counts. What is kept are the whole stripes that enough internal blocks hold: with
/// `d` data units, the `d`-th longest block says how many.
pub(super) fn plan_striped(
    block: Block,
    answers: &[Answer],
    stripe: Stripe,
) -> Result<StripedPlan, Unrecoverable> {
    let enough = |found: usize| {
        if found >= stripe.data {
            Ok(())
        } else {
            Err(Unrecoverable::TooFewInternalBlocks {
                found,
                needed: stripe.data,
            })
        }
    };
    enough(answers.len())?;
    let kept = longest_of_each(block, answers);
    let empty = answers.iter().filter(|answer| is_empty(answer)).count();
    let replicas = |index: usize| match answers[index] {
        Answer::Replica(replica) => replica.block.num_bytes,
        _ => 0,
    };
    // So many are surely without data that the rest cannot make a stripe, whatever the failed
    // locations would have said.
    let safe = if empty <= answers.len() - stripe.data {
        enough(kept.len())?;
        safe_stripes(kept.iter().map(|index| replicas(*index)).collect(), stripe)
    } else {
        0
    };
    if safe == 0 {
        return Ok(StripedPlan::Delete { named: kept });
    }
    let internal_length = safe.saturating_mul(stripe.cell);
    Ok(StripedPlan::Sync {
        participants: kept
            .into_iter()
            .filter(|index| replicas(*index) >= internal_length)
            .collect(),
        group_length: internal_length.saturating_mul(stripe.data as u64),
        internal_length,
    })
}

/// A location that surely has no data.
fn is_empty(answer: &Answer) -> bool {
    match answer {
        Answer::Absent => true,
        Answer::Replica(replica) => replica.block.num_bytes == 0,
        Answer::Failed => false,
    }
}

/// Of each internal block the location with the longest usable replica, by index in the group.
fn longest_of_each(block: Block, answers: &[Answer]) -> Vec<usize> {
    let mut best: [Option<(usize, u64)>; 16] = [None; 16];
    for (index, answer) in answers.iter().enumerate() {
        let Answer::Replica(replica) = answer else {
            continue;
        };
        if !is_candidate(block, replica) {
            continue;
        }
        let slot = &mut best[usize::from(replica.block.index_in_group())];
        if slot.is_none_or(|(_, length)| replica.block.num_bytes > length) {
            *slot = Some((index, replica.block.num_bytes));
        }
    }
    best.into_iter().flatten().map(|(index, _)| index).collect()
}

/// Whole stripes that at least `data` of the blocks hold. `lengths` has at least `data` entries.
fn safe_stripes(mut lengths: Vec<u64>, stripe: Stripe) -> u64 {
    lengths.sort_unstable();
    lengths[lengths.len() - stripe.data] / stripe.cell
}
