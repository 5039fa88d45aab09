//! Lost blocks of striped groups, rebuilt by a node from those on others.

use std::time::Duration;

use hayloft_wire::ids::StorageType;
use hayloft_wire::proto::hdfs::{BlockEcReconstructionInfo, DatanodeInfo};
use tokio::net::TcpListener;

use super::super::{Activity, ReconstructionSettings, Settings, XferError, reconstruct};
use super::node::{Node, Said};
use super::pool;
use super::striped::{Group, policy};

/// Three nodes that have the blocks of a group in turns.
struct Holders([Node; 3]);

impl Holders {
    async fn start() -> Self {
        Self::with(Settings::default()).await
    }

    async fn with(settings: Settings) -> Self {
        let node = || Node::with(settings.clone(), &[StorageType::Disk]);
        Self([node().await, node().await, node().await])
    }

    fn of(&self, index: usize) -> &Node {
        &self.0[index % self.0.len()]
    }

    /// Stores the group but for `lost`; what the NameNode would say is left.
    async fn store(&self, group: &Group, lost: &[usize]) -> Vec<(usize, DatanodeInfo)> {
        let mut left = Vec::new();
        for index in (0..group.stripe.width()).filter(|index| !lost.contains(index)) {
            group.store(index, self.of(index)).await;
            left.push((index, self.of(index).info()));
        }
        left
    }

    /// The one that has block 0 carries out.
    async fn carry_out(&self, order: BlockEcReconstructionInfo) -> Result<(), XferError> {
        reconstruct(&self.0[0].x, order)?.await
    }

    /// What was said of corrupt blocks: whose, and which.
    fn bad(&self) -> Vec<(String, i64)> {
        let said = self.0[0].said();
        let bad = said.into_iter().filter_map(|said| match said {
            Said::RemoteBad { source, block } => Some((source, block.block.id)),
            _ => None,
        });
        bad.collect()
    }
}

fn with_reconstruction(change: impl FnOnce(&mut ReconstructionSettings)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings.reconstruction);
    settings
}

const CELL: u32 = 4096;

#[tokio::test(flavor = "multi_thread")]
async fn blocks_of_every_shape_come_back() {
    let holders = Holders::with(with_reconstruction(|set| set.validation = true)).await;
    let targets = [Node::start().await, Node::start().await];
    let cell = CELL as usize;
    let stripe = 3 * cell;
    let mut id = -160_000;
    for len in [
        1,
        cell - 1,
        cell,
        cell + 1,
        stripe,
        stripe + 1,
        23 * cell + 777,
    ] {
        for lost in [vec![0], vec![4], vec![0, 1], vec![2, 3], vec![3, 4]] {
            id += 16;
            let group = Group::new(id, policy("rs", 3, 2, CELL), len);
            let missing: Vec<usize> = lost
                .iter()
                .copied()
                .filter(|&i| !group.internal[i].is_empty())
                .collect();
            let left = holders.store(&group, &lost).await;
            if missing.is_empty() {
                let order = group.order(&left, &[targets[0].info()], &[]);
                assert!(
                    holders.carry_out(order).await.is_err(),
                    "nothing is missing"
                );
                continue;
            }
            let infos: Vec<_> = targets[..missing.len()].iter().map(Node::info).collect();
            let outcome = holders.carry_out(group.order(&left, &infos, &[])).await;
            outcome.unwrap_or_else(|error| panic!("{lost:?} of {len} bytes: {error}"));
            for (index, target) in missing.into_iter().zip(&targets) {
                group.check(index, target).await;
            }
        }
    }
    assert_eq!(holders.bad(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_code_of_hdfs_is_decoded() {
    let holders = Holders::start().await;
    let targets = [
        Node::start().await,
        Node::start().await,
        Node::start().await,
        Node::start().await,
    ];
    let codes = [
        ("rs", 3, 2),
        ("rs", 6, 3),
        ("rs", 10, 4),
        ("rs-legacy", 6, 3),
        ("xor", 2, 1),
    ];
    for (number, (codec, data, parity)) in (1_i64..).zip(codes) {
        // More than several windows of a block, and no whole one at the end.
        let policy = policy(codec, data, parity, 64 << 10);
        let len = 400_001 * data as usize;
        let group = Group::new(-16_000 * number, policy, len);
        let lost: Vec<usize> = (1..=parity as usize).collect();
        let left = holders.store(&group, &lost).await;
        let infos: Vec<_> = targets[..lost.len()].iter().map(Node::info).collect();
        let outcome = holders.carry_out(group.order(&left, &infos, &[])).await;
        outcome.unwrap_or_else(|error| panic!("{codec} {data} {parity}: {error}"));
        for (&index, target) in lost.iter().zip(&targets) {
            group.check(index, target).await;
        }
    }
}

/// Blocks that are on their way already get no target, and targets too many get no block.
#[tokio::test(flavor = "multi_thread")]
async fn excluded_blocks_are_left_out() {
    let (holders, target) = (Holders::start().await, Node::start().await);
    let group = Group::new(-1600, policy("rs", 3, 2, CELL), 40_000);
    let left = holders.store(&group, &[1, 3]).await;
    let targets = [target.info(), Node::start().await.info()];
    let order = group.order(&left, &targets, &[1]);
    holders.carry_out(order).await.expect("block 3 is made");
    group.check(3, &target).await;
    let one = target
        .store
        .replica(&pool(), group.internal_block(1).block.id);
    assert!(one.is_none(), "block 1 was excluded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_source_is_reported_and_replaced() {
    for corrupt in [0, 1] {
        let (holders, target) = (Holders::start().await, Node::start().await);
        let group = Group::new(-1600, policy("rs", 3, 2, 64 << 10), 700_000);
        let left = holders.store(&group, &[2]).await;
        let block = group.internal_block(corrupt);
        // Late in the block, when some of it has been sent on already.
        let path = holders.of(corrupt).file(&format!("blk_{}", block.block.id));
        let mut bytes = std::fs::read(&path).expect("there");
        bytes[150_000] ^= 1;
        std::fs::write(&path, bytes).expect("written");
        let order = group.order(&left, &[target.info()], &[]);
        holders
            .carry_out(order)
            .await
            .expect("another source is there");
        group.check(2, &target).await;
        let whose = holders.of(corrupt).id.datanode_uuid.clone();
        assert_eq!(holders.bad(), [(whose, block.block.id)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_without_its_block_is_replaced() {
    let (holders, target) = (Holders::start().await, Node::start().await);
    let group = Group::new(-1600, policy("rs", 3, 2, CELL), 40_000);
    let mut left = holders.store(&group, &[1, 2]).await;
    // Named first, and not there.
    left.insert(0, (1, holders.of(1).info()));
    let order = group.order(&left, &[target.info()], &[]);
    holders
        .carry_out(order)
        .await
        .expect("three others are there");
    group.check(2, &target).await;
    assert_eq!(holders.bad(), []);
}

/// The second replica of a block serves where the first one does not.
#[tokio::test(flavor = "multi_thread")]
async fn another_replica_of_the_same_block_serves_too() {
    let (holders, target) = (Holders::start().await, Node::start().await);
    let group = Group::new(-1600, policy("rs", 3, 2, CELL), 40_000);
    let mut left = holders.store(&group, &[3, 4]).await;
    let mut gone = holders.of(1).info();
    gone.id.datanode_uuid = "gone".to_owned();
    gone.id.xfer_port = 1;
    left.insert(0, (1, gone));
    let order = group.order(&left, &[target.info()], &[4]);
    holders
        .carry_out(order)
        .await
        .expect("block 1 is elsewhere too");
    group.check(3, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_source_is_replaced() {
    let settings = with_reconstruction(|set| set.read_timeout = Duration::from_millis(200));
    let (holders, target) = (Holders::with(settings).await, Node::start().await);
    let group = Group::new(-1600, policy("rs", 3, 2, CELL), 40_000);
    let mut left = holders.store(&group, &[2]).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    left[1].1.id.xfer_port = silent.local_addr().expect("bound").port().into();
    left[1].1.id.datanode_uuid = "silent".to_owned();
    let order = group.order(&left, &[target.info()], &[]);
    holders
        .carry_out(order)
        .await
        .expect("another source is there");
    group.check(2, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_few_sources_make_no_block() {
    let (holders, target) = (Holders::start().await, Node::start().await);
    let group = Group::new(-1600, policy("rs", 3, 2, CELL), 40_000);
    let mut left = holders.store(&group, &[1, 2]).await;
    // One of the three needed is not there.
    left[2].1.id.xfer_port = 1;
    left[2].1.id.datanode_uuid = "gone".to_owned();
    let targets = [target.info(), target.info()];
    let order = group.order(&left, &targets, &[]);
    let error = holders.carry_out(order).await.expect_err("too few");
    assert!(error.to_string().contains("cannot connect"), "{error}");
    // The order itself names too few.
    let order = group.order(&left[..2], &targets, &[]);
    let error = holders.carry_out(order).await.expect_err("too few");
    assert!(
        error.to_string().contains("2 internal blocks are left"),
        "{error}"
    );
    let stored = (0..5).filter_map(|i| {
        target
            .store
            .replica(&pool(), group.internal_block(i).block.id)
    });
    assert_eq!(stored.count(), 0, "a target keeps nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_is_gone_costs_its_own_block_only() {
    let (holders, target) = (Holders::start().await, Node::start().await);
    let group = Group::new(-1600, policy("rs", 3, 2, CELL), 40_000);
    let left = holders.store(&group, &[1, 4]).await;
    let mut gone = target.info();
    gone.id.xfer_port = 1;
    let order = group.order(&left, &[gone.clone(), target.info()], &[]);
    holders.carry_out(order).await.expect("one target is there");
    group.check(4, &target).await;
    let order = group.order(&left, &[gone.clone(), gone], &[]);
    let error = holders.carry_out(order).await.expect_err("no target");
    assert!(
        error.to_string().contains("no target takes its block"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_load_counts_reconstructions_that_wait() {
    let settings = with_reconstruction(|set| set.threads = 1);
    let (holders, target) = (Holders::with(settings).await, Node::start().await);
    let group = Group::new(-1600, policy("rs", 6, 3, CELL), 100_000);
    let left = holders.store(&group, &[1]).await;
    let order = group.order(&left, &[target.info()], &[]);
    let x = &holders.0[0].x;
    let xmits = || x.stats().now(Activity::Xmit);
    let (first, second) = (reconstruct(x, order.clone()), reconstruct(x, order));
    let (first, second) = (first.expect("possible"), second.expect("possible"));
    // Six connections each, by half.
    assert_eq!(xmits(), 6);
    first.await.expect("rebuilt");
    assert_eq!(xmits(), 3);
    drop(second);
    assert_eq!(xmits(), 0);
    group.check(1, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_and_written_is_held_to_its_limits() {
    let holders = Holders::start().await;
    let targets = [Node::start().await, Node::start().await];
    let group = Group::new(-1600, policy("rs", 3, 2, 64 << 10), 900_000);
    let left = holders.store(&group, &[1]).await;
    let throttles = holders.0[0].x.throttles();
    // Of 300,000 bytes to write, and three times as many to read, half may go at once.
    let limits = [
        (&throttles.reconstruction_read, 900_000),
        (&throttles.reconstruction_write, 300_000),
    ];
    for ((limit, bytes), target) in limits.into_iter().zip(&targets) {
        limit.set(bytes);
        let began = tokio::time::Instant::now();
        let order = group.order(&left, &[target.info()], &[]);
        holders.carry_out(order).await.expect("rebuilt");
        let took = began.elapsed();
        assert!(took > Duration::from_millis(300), "{took:?}");
        limit.set(0);
        group.check(1, target).await;
    }
}
