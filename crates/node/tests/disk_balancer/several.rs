//! More than two volumes, and more than one block pool.

use std::time::Duration;

use hayloft_io::locks::lock;
use hayloft_store::{StartOption, VolumeConfig};
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId, StorageType};

use super::{FAST, Lab, MIB, spec};

/// A plan knows no pools: those of all name services move, in turn.
#[tokio::test]
async fn replicas_of_every_pool_move_in_turn() {
    let lab = Lab::uneven(4, &FAST).await;
    let other = PoolId::new("BP-2-127.0.0.1-1700000000000").expect("valid");
    let added = lab
        .store
        .add_pool(spec(other.clone()), StartOption::Regular)
        .await;
    added.expect("loads");
    // A third has none.
    let empty = PoolId::new("BP-3-127.0.0.1-1700000000000").expect("valid");
    let added = lab.store.add_pool(spec(empty), StartOption::Regular).await;
    added.expect("loads");
    for id in 1..=4 {
        // The same ids: blocks of two name services have nothing to do with each other.
        let block = ExtendedBlock::new(other.clone(), Block::new(id, 1000, 0));
        lab.put_block(&block, MIB).await;
    }
    lab.submit(&lab.plan(&[lab.step(0, 1, 4 * MIB)]))
        .expect("accepted");
    let state = lab.ended().await;
    assert_eq!(state[0]["workItem"]["blocksCopied"], 4);
    assert_eq!((lab.on(0), lab.on(1)), (2, 2));
    let of_other = [0, 1].map(|volume| lab.of_pool_on(&other, volume));
    assert_eq!(of_other, [2, 2]);
    let told = lock(&lab.told);
    let of_other = told.iter().filter(|block| block.pool == other).count();
    assert_eq!((told.len(), of_other), (4, 2), "NameNodes of both are told");
}

#[tokio::test]
async fn steps_between_several_volumes_follow_each_other() {
    let lab = Lab::new(&[StorageType::Disk; 4], &FAST).await;
    for id in 1..=8 {
        lab.put(id, MIB).await;
    }
    let steps = [(0, 1), (0, 2), (0, 3)].map(|(from, to)| lab.step(from, to, 2 * MIB));
    lab.submit(&lab.plan(&steps)).expect("accepted");
    let state = lab.ended().await;
    assert_eq!([0, 1, 2, 3].map(|volume| lab.on(volume)), [2; 4]);
    let steps = state.as_array().expect("steps");
    for (number, step) in steps.iter().enumerate() {
        let target = format!("{}/data{}/", lab.dir.path().display(), number + 1);
        assert_eq!(step["destPath"], target);
        assert_eq!(step["workItem"]["bytesCopied"], 2 * MIB);
        assert!(step["workItem"].get("errMsg").is_none(), "{step}");
    }
    assert_eq!(steps.len(), 3);
    // What came there goes on: a plan moves replicas that an earlier one has moved.
    lab.submit(&lab.plan(&[lab.step(1, 0, 2 * MIB)]))
        .expect("accepted");
    lab.ended().await;
    assert_eq!([0, 1, 2, 3].map(|volume| lab.on(volume)), [4, 0, 2, 2]);
}

/// An operator takes a volume out while a plan moves to it: what is left of that step is not done,
/// the next step is, and no replica is lost.
#[tokio::test]
async fn a_volume_that_an_operator_takes_out_ends_its_step_only() {
    let lab = Lab::new(&[StorageType::Disk; 3], &FAST).await;
    for id in 1..=8 {
        lab.put(id, MIB).await;
    }
    let mut slow = lab.step(0, 1, 4 * MIB);
    slow["bandwidth"] = 4.into();
    let plan = lab.plan(&[slow, lab.step(0, 2, MIB)]);
    lab.submit(&plan).expect("accepted");
    while lab.on(1) < 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let root = lab.dir.path().join("data1");
    let left = ["data0", "data2"].map(|name| VolumeConfig::new(lab.dir.path().join(name)));
    lab.store.reconfigure_volumes(left.into()).await;
    let state = lab.ended().await;
    let gone = format!(
        "Disk Balancer - Unable to find dest volume: {}/",
        root.display()
    );
    assert_eq!(state[0]["workItem"]["errMsg"], gone);
    assert_eq!(state[1]["workItem"]["blocksCopied"], 1);
    assert_eq!(lab.on(2), 1);
    // Those that had moved left with their volume; each of the others is in one place.
    let moved = state[0]["workItem"]["blocksCopied"].as_u64().unwrap_or(0);
    assert!((1..4).contains(&moved), "{moved}");
    assert!(
        (lab.on(0) as u64).abs_diff(7 - moved) <= 1,
        "{} left",
        lab.on(0)
    );
}
