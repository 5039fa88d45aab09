//! What changes of replicas do to groups.

use proptest::prelude::*;

use super::*;
use crate::record::{FileStamp, MemberRecord, ParityRecord, Section};
use crate::shape::ParityShape;

const MUCH: u64 = 1 << 40;

fn pool() -> PoolId {
    PoolId::new("BP-1-127.0.0.1-1").expect("valid")
}

/// Group `id` of blocks of 100 bytes each, block n on storage n.
fn group(id: u128, blocks: &[i64]) -> GroupRecord {
    let member = |block_id: &i64| MemberRecord {
        block_id: *block_id,
        generation_stamp: 1001,
        covered: 100,
        storage: format!("DS-{block_id}").into(),
        root: "/d".into(),
        stamp: FileStamp::default(),
        dropped: false,
        sums: Section::default(),
    };
    GroupRecord {
        id: GroupId(id),
        revision: 1,
        shape: ParityShape::new(4, 1).expect("valid"),
        pool: pool(),
        members: blocks.iter().map(member).collect(),
        parity: vec![ParityRecord {
            storage: "DS-p".into(),
            root: "/p".into(),
            sums: Section::default(),
        }],
        copies: vec!["DS-p".into(), "DS-1".into()],
    }
}

fn committed(table: &mut GroupTable, record: GroupRecord) {
    table.claim(record.clone());
    table.begin_commit(record.clone()).expect("not spoiled");
    table.committed(record.id);
}

fn gone(table: &mut GroupTable, id: i64, kept_max: u64) -> Vec<KeepData> {
    let storage = format!("DS-{id}");
    table.change(&pool(), id, &storage, MemberChange::Gone, kept_max)
}

#[test]
fn a_change_spoils_a_group_that_is_being_encoded() {
    let mut table = GroupTable::default();
    let record = group(1, &[1, 2]);
    table.claim(record.clone());
    assert!(table.is_taken(&pool(), 1, "DS-1", 100));
    assert!(
        table.cover(&pool(), 1, "DS-1").is_none(),
        "nothing protects it yet"
    );
    // On another storage it is another replica, and what is behind the covered bytes is no matter.
    assert_eq!(
        table.change(&pool(), 1, "DS-9", MemberChange::Gone, MUCH),
        []
    );
    assert_eq!(
        table.change(&pool(), 1, "DS-1", MemberChange::Cut { len: 100 }, MUCH),
        []
    );
    table.begin_commit(record.clone()).expect("not spoiled");
    table.remove(record.id);
    table.claim(record.clone());
    assert_eq!(gone(&mut table, 2, MUCH), []);
    assert_eq!(table.begin_commit(record), Err(ClaimSpoiled));
    assert!(!table.is_taken(&pool(), 1, "DS-1", 100));
}

#[test]
fn data_of_a_member_is_kept_while_there_is_room() {
    let mut table = GroupTable::default();
    committed(&mut table, group(1, &[1, 2, 3]));
    let keep = gone(&mut table, 1, 150);
    let unit = UnitRef {
        group: GroupId(1),
        unit: 0,
    };
    assert_eq!(
        keep,
        [KeepData {
            unit,
            covered: 100,
            copy: false
        }]
    );
    assert_eq!(
        (
            table.kept_bytes(),
            table.totals(|_, _| true, |_, _| true).all.protected
        ),
        (100, 200)
    );
    assert!(
        table.is_taken(&pool(), 2, "DS-2", 100),
        "one of three is no reason to encode anew"
    );
    // A second change of what is kept is of no matter.
    assert_eq!(gone(&mut table, 1, 150), []);
    assert_eq!(gone(&mut table, 2, 150), [], "over the limit");
    let totals = table.totals(|_, _| true, |_, _| true).all;
    assert_eq!(
        (totals.protected, totals.degraded, totals.lost),
        (0, 100, 0)
    );
    assert!(
        !table.is_taken(&pool(), 3, "DS-3", 100),
        "it belongs in a new group"
    );
    assert_eq!(table.useless(), []);
    committed(&mut table, group(2, &[3]));
    assert_eq!(table.useless(), [GroupId(1)]);
    table.remove(GroupId(1));
    assert_eq!(
        (
            table.kept_bytes(),
            table.totals(|_, _| true, |_, _| true).all.protected
        ),
        (0, 100)
    );
}

#[test]
fn a_cut_copies_what_is_behind_it() {
    let mut table = GroupTable::default();
    committed(&mut table, group(1, &[1, 2]));
    let keep = table.change(&pool(), 1, "DS-1", MemberChange::Cut { len: 99 }, MUCH);
    assert!(keep.len() == 1 && keep[0].copy);
    assert_eq!(
        table.get(GroupId(1)).expect("there").members[0],
        MemberState::Kept
    );
    table.set_member(keep[0].unit, MemberState::Absent);
    assert_eq!(table.kept_bytes(), 0);
}

#[test]
fn a_grown_replica_is_covered_in_part_and_taken_in_anew() {
    let mut table = GroupTable::default();
    committed(&mut table, group(1, &[1, 2]));
    assert!(!table.is_taken(&pool(), 1, "DS-1", 130));
    let mut grown = group(2, &[1]);
    grown.members[0].covered = 130;
    committed(&mut table, grown);
    assert_eq!(table.cover(&pool(), 1, "DS-1").expect("covered").1, 130);
    // The old group has the beginning of block 1 as a source for block 2.
    assert_eq!(table.useless(), []);
    let keep = gone(&mut table, 1, MUCH);
    assert_eq!(keep.len(), 2, "each group needs it");
    assert_eq!(gone(&mut table, 2, MUCH).len(), 1);
    let mut useless = table.useless();
    useless.sort_unstable();
    assert_eq!(useless, [GroupId(1), GroupId(2)]);
}

#[test]
fn a_lost_storage_makes_its_units_absent() {
    let mut table = GroupTable::default();
    committed(&mut table, group(1, &[1, 2]));
    committed(&mut table, group(2, &[3, 1]));
    table.claim(group(3, &[1, 4]));
    let lost = table.lose_storage("DS-1");
    assert_eq!(lost.len(), 3);
    let totals = table.totals(|_, _| true, |_, _| true).all;
    // Block 1 in its newer group, and 2 and 3.
    assert_eq!(
        (totals.degraded, totals.protected, totals.to_rebuild),
        (300, 0, 100)
    );
    assert_eq!(table.begin_commit(group(3, &[1, 4])), Err(ClaimSpoiled));
    table.lose_storage("DS-p");
    let totals = table.totals(|_, _| true, |_, _| true).all;
    assert_eq!(
        (totals.degraded, totals.lost, totals.to_rebuild),
        (0, 100, 0)
    );
    assert!(!table.get(GroupId(1)).expect("there").decodes());
}

proptest! {
    /// Whatever happens: what is kept is what the states say, each block finds exactly its groups,
    /// and a member of a committed group that leaves is kept or counted as absent.
    #[test]
    fn books_balance(
        steps in proptest::collection::vec((0..7_u8, 0..6_i64, 0..6_u128), 0..80),
        kept_max in 0..800_u64,
    ) {
        let mut table = GroupTable::default();
        for (step, block, id) in steps {
            let record = group(id, &[block, (block + 1) % 6, (block + 2) % 6]);
            match step {
                0 => table.claim(record),
                1 => {
                    let there = table.get(GroupId(id)).map(|g| (*g.record).clone());
                    let _ = there.map(|record| table.begin_commit(record));
                }
                2 => table.committed(GroupId(id)),
                3 => {
                    let before = table.kept_bytes();
                    let kept = gone(&mut table, block, kept_max);
                    let more: u64 = kept.iter().map(|k| k.covered).sum();
                    prop_assert_eq!(table.kept_bytes(), before + more);
                    prop_assert!(more == 0 || table.kept_bytes() <= kept_max);
                    let storage = format!("DS-{block}");
                    prop_assert!(table.cover(&pool(), block, &storage).is_none());
                }
                4 => drop(table.remove(GroupId(id))),
                5 => drop(table.lose_storage(&format!("DS-{block}"))),
                _ => {
                    let mut record = record;
                    record.members[0].dropped = true;
                    table.adopt(record, vec![MemberState::Kept], vec![false]);
                }
            }
            let states: u64 = table.iter()
                .flat_map(|g| g.record.members.iter().zip(&g.members))
                .map(|(m, s)| if *s == MemberState::Kept { m.covered } else { 0 })
                .sum();
            prop_assert_eq!(table.kept_bytes(), states);
            let refs: usize = table.members.values().flat_map(HashMap::values).map(Vec::len).sum();
            prop_assert_eq!(refs, table.iter().map(|g| g.record.members.len()).sum::<usize>());
            for useless in table.useless() {
                let group = table.get(useless).expect("there");
                prop_assert_eq!(group.phase, GroupPhase::Committed);
            }
            let totals = table.totals(|_, _| true, |_, _| true).all;
            prop_assert!(totals.lost == 0 || table.iter().any(|g| !g.decodes()));
        }
    }
}
