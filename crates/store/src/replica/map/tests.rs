use super::*;

fn replica(n: u64) -> Slot {
    Slot::Finalized(FinalReplica {
        generation_stamp: n,
        len: n,
        volume: 0,
        pinned: false,
    })
}

#[test]
fn a_finalized_replica_is_small() {
    // Key, slot and one control byte, at the emptiest that a hash map gets after growing.
    let bytes = (size_of::<(i64, Slot)>() + 1) * 16 / 7;
    assert!(bytes < 150, "{bytes}");
    assert_eq!(size_of::<Slot>(), 24);
}

#[test]
fn blocks_come_and_go() {
    let map = ReplicaMap::new(Arc::default());
    map.reserve(1000);
    for id in -500..500 {
        assert!(map.insert_new(id, replica(1)).is_ok());
    }
    assert!(map.insert_new(3, replica(2)).is_err());
    assert_eq!(map.len(), 1000);
    assert!(map.remove(3).is_some() && map.get(3).is_none());
    assert_eq!(map.retain(|id, _| id >= 0).len(), 500);
    let mut seen = 0;
    map.for_each(|_, _| seen += 1);
    assert_eq!(seen, 499);
}

#[test]
fn only_what_was_seen_is_replaced() {
    let map = ReplicaMap::new(Arc::default());
    let there = |stamp| map.get(3).is_some_and(|now| now.is_same(&replica(stamp)));
    assert!(map.insert_new(3, replica(1)).is_ok());
    let seen = map.insert_new(3, replica(2)).expect_err("is there");
    drop(map.insert(3, replica(5)));
    assert!(map.replace_if(3, &seen, replica(2)).is_none() && there(5));
    let seen = map.get(3).expect("is there");
    map.remove(3);
    assert!(map.replace_if(3, &seen, replica(6)).is_none() && map.get(3).is_none());
    drop(map.insert(3, seen.clone()));
    assert!(map.replace_if(3, &seen, replica(6)).is_some() && there(6));
    assert!(!map.remove_if(3, &seen) && there(6));
    assert!(map.remove_if(3, &replica(6)) && map.get(3).is_none());
}

#[test]
fn sequential_ids_spread_over_all_shards() {
    let map = ReplicaMap::new(Arc::default());
    for id in 1_073_741_825..1_073_741_825 + 6400 {
        map.insert(id, replica(1));
    }
    for shard in &map.shards {
        let n = shard.lock().expect("not poisoned").len();
        assert!((50..=200).contains(&n), "{n}");
    }
}
