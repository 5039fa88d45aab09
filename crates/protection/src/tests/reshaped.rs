//! Groups from before another shape was configured.

use super::*;

use hayloft_parity::MemberState;

fn shapes(node: &Node) -> Vec<String> {
    let parity = &node.parity;
    let table = parity.table();
    let mut shapes: Vec<String> = table.iter().map(|g| g.record.shape.to_string()).collect();
    shapes.sort_unstable();
    shapes.dedup();
    shapes
}

#[tokio::test]
async fn groups_of_another_shape_decode_and_give_way() {
    for ((data, parity), (next_data, next_parity)) in
        [((3, 1), (2, 2)), ((2, 2), (3, 1)), ((4, 1), (2, 1))]
    {
        let (before, now) = (shape(data, parity), shape(next_data, next_parity));
        let node = start(5, before).await;
        for id in 1..9 {
            put(&node, id, 90_000).await;
        }
        round(&node).await;
        assert_eq!(shapes(&node), [before.to_string()]);
        let node = again(node, now, true).await;
        kill_disk(&node, 1).await;
        for id in 1..9 {
            check(&node, id, 90_000).await;
        }
        for _ in 0..4 {
            round(&node).await;
        }
        let said = status(&node);
        let left = (said.degraded_bytes, said.rebuild_remaining_bytes);
        assert_eq!((said.protected_bytes, left), (720_000, (0, 0)), "{said:?}");
        assert_eq!(shapes(&node), [now.to_string()]);
        // The dead disk has what it had.
        let on_others = files(&node).into_iter().filter(|(volume, _)| *volume != 1);
        let parity_files = on_others.filter(|(_, file)| matches!(file, GroupFile::Parity(..)));
        let expected = said.groups * now.parity() as u64;
        assert_eq!(parity_files.count() as u64, expected);
        let all_there = {
            let parity = &node.parity;
            let table = parity.table();
            let mut states = table.iter().flat_map(|group| &group.members);
            states.all(|state| *state == MemberState::Live)
        };
        assert!(all_there);
        kill_disk(&node, 2).await;
        for id in 1..9 {
            check(&node, id, 90_000).await;
        }
    }
}
