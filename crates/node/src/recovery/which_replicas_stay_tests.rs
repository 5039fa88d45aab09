use hayloft_wire::ids::{Block, ReplicaState};
use proptest::prelude::*;

use super::which_replicas_stay::{
    Answer, ContiguousPlan as Plan, Replica, StripedPlan, Unrecoverable, plan_contiguous,
    plan_striped,
};
use hayloft_client::stripe::Stripe;

const BLOCK: Block = Block::new(7, 100, 0);
const RS_6_3: Stripe = Stripe {
    data: 6,
    parity: 3,
    cell: 1 << 20,
};

fn replica(state: ReplicaState, length: u64) -> Answer {
    with_stamp(state, length, 100)
}

fn with_stamp(state: ReplicaState, length: u64, stamp: u64) -> Answer {
    Answer::Replica(Replica {
        block: Block::new(7, stamp, length),
        state,
    })
}

fn sync(participants: &[usize], length: u64) -> Result<Plan, Unrecoverable> {
    Ok(Plan::Sync {
        participants: participants.to_vec(),
        length,
    })
}

use ReplicaState::{Finalized, Rbw, Rur, Rwr, Temporary};

#[test]
fn a_finalized_length_wins_over_longer_and_shorter_ones() {
    let answers = [
        replica(Rbw, 20),
        replica(Finalized, 10),
        replica(Rbw, 10),
        replica(Rbw, 5),
        replica(Rwr, 10),
    ];
    assert_eq!(plan_contiguous(BLOCK, &answers, None), sync(&[1, 2], 10));
}

#[test]
fn finalized_replicas_must_agree() {
    let answers = [replica(Finalized, 10), replica(Finalized, 11)];
    assert_eq!(
        plan_contiguous(BLOCK, &answers, None),
        Err(Unrecoverable::FinalizedDiffer { one: 10, other: 11 })
    );
}

#[test]
fn replicas_being_written_meet_at_the_shortest() {
    let answers = [replica(Rbw, 30), replica(Rwr, 2), replica(Rbw, 20)];
    assert_eq!(plan_contiguous(BLOCK, &answers, None), sync(&[0, 2], 20));
}

#[test]
fn interrupted_replicas_count_only_when_there_is_nothing_better() {
    let answers = [Answer::Failed, replica(Rwr, 9), replica(Rwr, 4)];
    assert_eq!(plan_contiguous(BLOCK, &answers, None), sync(&[1, 2], 4));
}

#[test]
fn stale_and_empty_replicas_do_not_count() {
    let answers = [
        with_stamp(Finalized, 10, 99),
        replica(Rbw, 0),
        Answer::Absent,
    ];
    assert_eq!(plan_contiguous(BLOCK, &answers, None), Ok(Plan::Delete));
    let answers = [with_stamp(Finalized, 10, 99), with_stamp(Rbw, 8, 101)];
    assert_eq!(plan_contiguous(BLOCK, &answers, None), sync(&[1], 8));
}

#[test]
fn replicas_in_no_usable_state_stop_the_recovery() {
    let answers = [replica(Temporary, 10), replica(Rur, 10)];
    assert_eq!(
        plan_contiguous(BLOCK, &answers, None),
        Err(Unrecoverable::NoneUsable { found: 2 })
    );
}

#[test]
fn a_block_is_not_deleted_because_no_node_answers() {
    assert_eq!(
        plan_contiguous(BLOCK, &[Answer::Failed, Answer::Failed], None),
        Err(Unrecoverable::AllFailed { locations: 2 })
    );
    assert_eq!(
        plan_contiguous(BLOCK, &[], None),
        Err(Unrecoverable::AllFailed { locations: 0 })
    );
    assert_eq!(
        plan_contiguous(BLOCK, &[Answer::Failed, Answer::Absent], None),
        Ok(Plan::Delete)
    );
}

#[test]
fn a_truncate_says_the_length() {
    let answers = [replica(Finalized, 10), replica(Finalized, 10)];
    assert_eq!(plan_contiguous(BLOCK, &answers, Some(3)), sync(&[0, 1], 3));
}

fn internal(index: i64, length: u64) -> Answer {
    Answer::Replica(Replica {
        block: Block::new(-1600 + index, 100, length),
        state: Rbw,
    })
}

const GROUP: Block = Block::new(-1600, 100, 0);
const MB: u64 = 1 << 20;

#[test]
fn a_group_keeps_its_whole_stripes() {
    let answers: Vec<_> = (0..9)
        .map(|index| internal(index, if index < 2 { 5 * MB } else { 3 * MB + 17 }))
        .collect();
    assert_eq!(
        plan_striped(GROUP, &answers, RS_6_3),
        Ok(StripedPlan::Sync {
            participants: (0..9).collect(),
            group_length: 18 * MB,
            internal_length: 3 * MB,
        })
    );
}

#[test]
fn blocks_that_are_too_short_are_left_behind() {
    let mut answers: Vec<_> = (0..9).map(|index| internal(index, 4 * MB)).collect();
    answers[3] = internal(3, MB);
    answers[8] = Answer::Failed;
    assert_eq!(
        plan_striped(GROUP, &answers, RS_6_3),
        Ok(StripedPlan::Sync {
            participants: vec![0, 1, 2, 4, 5, 6, 7],
            group_length: 24 * MB,
            internal_length: 4 * MB,
        })
    );
}

#[test]
fn the_longest_of_equal_internal_blocks_counts() {
    let mut answers: Vec<_> = (0..6).map(|index| internal(index, 2 * MB)).collect();
    answers.push(internal(0, 3 * MB));
    assert_eq!(
        plan_striped(GROUP, &answers, RS_6_3),
        Ok(StripedPlan::Sync {
            participants: vec![6, 1, 2, 3, 4, 5],
            group_length: 12 * MB,
            internal_length: 2 * MB,
        })
    );
}

#[test]
fn a_group_without_a_stripe_is_deleted() {
    let mut answers: Vec<_> = (0..5).map(|index| internal(index, MB)).collect();
    answers.extend([
        Answer::Absent,
        internal(6, 0),
        Answer::Absent,
        Answer::Absent,
    ]);
    assert_eq!(
        plan_striped(GROUP, &answers, RS_6_3),
        Ok(StripedPlan::Delete {
            named: (0..5).collect()
        })
    );
    let partial: Vec<_> = (0..9).map(|index| internal(index, 100)).collect();
    assert_eq!(
        plan_striped(GROUP, &partial, RS_6_3),
        Ok(StripedPlan::Delete {
            named: (0..9).collect()
        })
    );
}

#[test]
fn a_group_waits_for_nodes_that_may_hold_data() {
    let mut answers: Vec<_> = (0..5).map(|index| internal(index, MB)).collect();
    answers.extend([Answer::Failed; 4]);
    assert_eq!(
        plan_striped(GROUP, &answers, RS_6_3),
        Err(Unrecoverable::TooFewInternalBlocks {
            found: 5,
            needed: 6
        })
    );
    assert_eq!(
        plan_striped(GROUP, &answers[..5], RS_6_3),
        Err(Unrecoverable::TooFewInternalBlocks {
            found: 5,
            needed: 6
        })
    );
}

fn any_answer() -> impl Strategy<Value = Answer> {
    let state = prop_oneof![
        Just(Finalized),
        Just(Rbw),
        Just(Rwr),
        Just(Rur),
        Just(Temporary)
    ];
    prop_oneof![
        Just(Answer::Failed),
        Just(Answer::Absent),
        (state, 0_u64..4, 99_u64..102)
            .prop_map(|(state, length, stamp)| with_stamp(state, length, stamp)),
    ]
}

proptest! {
    /// Whatever is chosen: no node that takes part is stale, empty, or shorter than the new length:
    /// they are only ever cut. No unusable node takes part, and a finalized candidate is in.
    #[test]
    fn plans_only_ever_cut(answers in prop::collection::vec(any_answer(), 0..8)) {
        if let Ok(Plan::Sync { participants, length }) = plan_contiguous(BLOCK, &answers, None) {
            prop_assert!(!participants.is_empty() && length > 0);
            for (index, answer) in answers.iter().enumerate() {
                let Answer::Replica(found) = answer else {
                    prop_assert!(!participants.contains(&index));
                    continue;
                };
                let candidate = found.block.generation_stamp >= 100 && found.block.num_bytes > 0;
                if participants.contains(&index) {
                    prop_assert!(candidate && found.block.num_bytes >= length);
                    prop_assert!(matches!(found.state, Finalized | Rbw | Rwr));
                } else {
                    prop_assert!(!(candidate && found.state == Finalized));
                }
            }
        }
    }

    /// A block with a usable replica is never deleted, and order does not matter.
    #[test]
    fn deletes_only_what_no_node_has(answers in prop::collection::vec(any_answer(), 1..8)) {
        let plan = plan_contiguous(BLOCK, &answers, None);
        if plan == Ok(Plan::Delete) {
            let held = answers.iter().any(|answer| matches!(answer, Answer::Replica(found)
                if found.block.generation_stamp >= 100 && found.block.num_bytes > 0));
            prop_assert!(!held);
        }
        let mirrored: Vec<_> = answers.iter().rev().copied().collect();
        match (plan, plan_contiguous(BLOCK, &mirrored, None)) {
            (Ok(Plan::Sync { length, .. }), Ok(Plan::Sync { length: other, .. })) => {
                prop_assert_eq!(length, other);
            }
            (one, other) => prop_assert_eq!(one.is_err(), other.is_err()),
        }
    }

    /// Whole stripes only, each kept one held by at least as many blocks as there are data units.
    #[test]
    fn groups_keep_only_whole_stripes(lengths in prop::collection::vec(0_u64..(4 << 20), 6..9)) {
        let numbered = (0_i64..).zip(&lengths);
        let answers: Vec<_> = numbered.map(|(index, length)| internal(index, *length)).collect();
        if let Ok(StripedPlan::Sync { participants, group_length, internal_length }) =
            plan_striped(GROUP, &answers, RS_6_3)
        {
            prop_assert!(participants.len() >= RS_6_3.data);
            prop_assert_eq!(group_length, internal_length * 6);
            prop_assert_eq!(internal_length % RS_6_3.cell, 0);
            prop_assert!(participants.iter().all(|index| lengths[*index] >= internal_length));
        }
    }
}
