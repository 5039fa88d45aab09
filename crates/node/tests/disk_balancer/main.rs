//! Plans against a store with two volumes. [`refused`]: what is no order. [`several`]: more
//! volumes, and more block pools.

mod refused;
mod several;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use hayloft_conf::{Configuration, SharedConfig};
use hayloft_io::locks::lock;
use hayloft_node::disk_balancer::{DiskBalancer, DiskBalancerParts, plan_id};
use hayloft_store::{
    PacketData, PoolSpec, StartOption, Store, StoreConfig, StoreEvent, VolumeConfig, WriteOptions,
    now_ms,
};
use hayloft_wire::checksum::{ChecksumKind, DataChecksum};
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId, StorageType};
use hayloft_wire::proto::clientdatanode::SubmitDiskBalancerPlanRequest;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const MIB: u64 = 1 << 20;

fn pool() -> PoolId {
    PoolId::new("BP-1-127.0.0.1-1700000000000").expect("valid")
}

fn block(id: i64) -> ExtendedBlock {
    ExtendedBlock::new(pool(), Block::new(id, 1000, 0))
}

fn spec(pool: PoolId) -> PoolSpec {
    PoolSpec {
        pool,
        cluster_id: "CID-1".to_owned(),
        namespace_id: 77,
        ctime: 0,
    }
}

struct Lab {
    balancer: DiskBalancer,
    store: Store,
    told: Arc<Mutex<Vec<ExtendedBlock>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
    _events: mpsc::Receiver<StoreEvent>,
    dir: TempDir,
}

fn config(dir: &Path, properties: &[(&str, &str)]) -> Configuration {
    let property =
        |(name, value)| format!("<property><name>{name}</name><value>{value}</value></property>");
    let all: String = properties.iter().copied().map(property).collect();
    let text = format!("<configuration>{all}</configuration>");
    std::fs::write(dir.join("hdfs-site.xml"), text).expect("writable");
    Configuration::load(dir, &[]).expect("valid")
}

impl Lab {
    async fn new(types: &[StorageType], properties: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let volume = |(n, kind): (usize, &StorageType)| VolumeConfig {
            storage_type: *kind,
            ..VolumeConfig::new(dir.path().join(format!("data{n}")))
        };
        let store_config = StoreConfig {
            volumes: types.iter().enumerate().map(volume).collect(),
            ..StoreConfig::default()
        };
        let (sender, events) = mpsc::channel(1000);
        let store = Store::open(store_config, sender).await.expect("opens");
        let added = store.add_pool(spec(pool()), StartOption::Regular).await;
        added.expect("loads");
        let told = Arc::<Mutex<Vec<ExtendedBlock>>>::default();
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let telling = Arc::clone(&told);
        let balancer = DiskBalancer::new(DiskBalancerParts {
            store: store.clone(),
            config: SharedConfig::new(config(dir.path(), properties)),
            tell: Arc::new(move |moved| lock(&telling).push(moved.block.clone())),
            in_special_state: false,
            tasks: tasks.clone(),
            stop: stop.clone(),
        });
        Self {
            balancer,
            store,
            told,
            tasks,
            stop,
            _events: events,
            dir,
        }
    }

    /// Two DISK volumes, and so many replicas of 1 MiB on the first.
    async fn uneven(replicas: i64, properties: &[(&str, &str)]) -> Self {
        let lab = Self::new(&[StorageType::Disk; 2], properties).await;
        for id in 1..=replicas {
            lab.put(id, MIB).await;
        }
        lab
    }

    fn storage(&self, volume: usize) -> String {
        let root = self.dir.path().join(format!("data{volume}"));
        let volumes = self.store.volume_spaces().into_iter();
        let id = volumes.filter(|v| v.path == root).map(|v| v.storage.id);
        id.last().expect("there").to_string()
    }

    /// A finalized replica on the first volume.
    async fn put(&self, id: i64, len: u64) {
        self.put_block(&block(id), len).await;
    }

    async fn put_block(&self, block: &ExtendedBlock, len: u64) {
        let options = WriteOptions {
            storage_id: Some(self.storage(0)),
            ..WriteOptions::default()
        };
        let created = self.store.create_rbw(block, options).await;
        let mut writer = created.expect("creates");
        let checksum = DataChecksum::new(ChecksumKind::Crc32c, 512).expect("valid");
        writer.set_checksum(checksum).await.expect("header");
        let data = vec![7; usize::try_from(len).expect("small")];
        let mut sums = Vec::new();
        data.chunks(512)
            .for_each(|c| checksum.compute(c, &mut sums));
        if len > 0 {
            let packet = PacketData::new(checksum, 0, data.into(), Bytes::from(sums));
            writer
                .write(vec![packet.expect("agrees")])
                .await
                .expect("writes");
        }
        writer.finalize().await.expect("finalizes");
    }

    fn on(&self, volume: usize) -> usize {
        self.of_pool_on(&pool(), volume)
    }

    fn of_pool_on(&self, pool: &PoolId, volume: usize) -> usize {
        let of = (pool, &*self.storage(volume));
        self.store.movable_on(of, i64::MIN, u64::MAX, 1000).len()
    }

    fn step(&self, source: usize, target: usize, bytes: u64) -> Value {
        let volume = |n: usize| {
            json!({
                "path": format!("/planned/{n}"), "capacity": 1000, "storageType": "DISK",
                "used": 10, "reserved": 0, "uuid": self.storage(n), "failed": false,
                "volumeDataDensity": "NaN", "skip": false, "transient": false, "readOnly": false,
            })
        };
        json!({
            "@class": "org.apache.hadoop.hdfs.server.diskbalancer.planner.MoveStep",
            "sourceVolume": volume(source), "destinationVolume": volume(target),
            "idealStorage": 0.25, "bytesToMove": bytes, "volumeSetID": "some-set",
        })
    }

    fn plan(&self, steps: &[Value]) -> Value {
        json!({
            "volumeSetPlans": steps, "nodeName": "localhost", "port": 9867,
            "nodeUUID": self.store.datanode_uuid(), "timeStamp": now_ms(),
        })
    }

    fn submit(&self, plan: &Value) -> Result<(), String> {
        let refused = self.balancer.submit(&request(&plan.to_string()));
        refused.map_err(|refused| refused.0)
    }

    fn state(&self) -> (u32, Value) {
        let answer = self.balancer.query().expect("is on");
        let state = answer.current_status.unwrap_or_default();
        let state = serde_json::from_str(&state).expect("JSON");
        (answer.result.expect("told"), state)
    }

    async fn ended(&self) -> Value {
        loop {
            let (result, state) = self.state();
            if result != 1 {
                assert_eq!(result, 2);
                return state;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn request(plan: &str) -> SubmitDiskBalancerPlanRequest {
    SubmitDiskBalancerPlanRequest {
        plan_id: plan_id(plan),
        plan: plan.to_owned(),
        plan_version: Some(1),
        ignore_date_check: None,
        plan_file: "/plans/a.json".to_owned(),
    }
}

const FAST: [(&str, &str); 1] = [("dfs.disk.balancer.max.disk.throughputInMBperSec", "100000")];

#[tokio::test]
async fn a_plan_moves_what_it_says_and_tells_of_each_replica() {
    let lab = Lab::uneven(10, &FAST).await;
    let nothing = json!({"currentState": [], "result": "NO_PLAN", "planID": "", "planFile": ""});
    let status = || serde_json::from_str::<Value>(&lab.balancer.status()).expect("JSON");
    assert_eq!(status(), nothing);
    assert_eq!(lab.state(), (0, json!([])));
    let plan = lab.plan(&[lab.step(0, 1, 3 * MIB), lab.step(0, 1, 2 * MIB)]);
    lab.submit(&plan).expect("accepted");
    let state = lab.ended().await;
    // Two steps between the same volumes are one; 5 MiB are there after five replicas of ten.
    assert_eq!((lab.on(0), lab.on(1)), (5, 5));
    assert_eq!(lock(&lab.told).len(), 5);
    let [step] = state.as_array().expect("steps").as_slice() else {
        panic!("{state}");
    };
    assert_eq!(
        step["sourcePath"],
        format!("{}/data0/", lab.dir.path().display())
    );
    assert_eq!(
        step["destPath"],
        format!("{}/data1/", lab.dir.path().display())
    );
    let item = &step["workItem"];
    assert_eq!(item["bytesToCopy"], 5 * MIB);
    assert_eq!(
        (&item["bytesCopied"], &item["blocksCopied"]),
        (&json!(5 * MIB), &json!(5))
    );
    assert!(
        item["startTime"].is_u64() && item.get("errorCount").is_none(),
        "{item}"
    );
    assert_eq!(status()["result"], "PLAN_DONE");
    assert_eq!(status()["planID"], plan_id(&plan.to_string()));
    assert_eq!(status()["planFile"], "/plans/a.json");
    assert_eq!(status()["currentState"], state);
    // A plan that is through cannot be cancelled, and stays done.
    lab.balancer
        .cancel(&plan_id(&plan.to_string()))
        .await
        .expect("known");
    assert_eq!(lab.state().0, 2);
    // The next one may begin. It finds no replica as short as what is left to move.
    lab.submit(&lab.plan(&[lab.step(1, 0, MIB / 2)]))
        .expect("accepted");
    let state = lab.ended().await;
    let item = &state[0]["workItem"];
    assert_eq!(item["errMsg"], "No source blocks found to move.");
    assert_eq!((lab.on(0), lab.on(1)), (5, 5));
}

#[tokio::test]
async fn the_tolerance_ends_a_step_early_and_lets_a_longer_replica_pass() {
    let lab = Lab::uneven(10, &FAST).await;
    // 2 MiB and a half are half a MiB more than the plan's, within 25 per cent.
    let mut step = lab.step(0, 1, 2 * MIB + MIB / 2);
    step["tolerancePercent"] = 26.into();
    lab.submit(&lab.plan(&[step])).expect("accepted");
    let state = lab.ended().await;
    assert_eq!(state[0]["workItem"]["blocksCopied"], 2);
    assert!(state[0]["workItem"].get("errMsg").is_none());
    // The last replica is longer than what is left of the step, and not by more than 100 per cent.
    let mut step = lab.step(0, 1, MIB / 2);
    step["tolerancePercent"] = 100.into();
    lab.submit(&lab.plan(&[step])).expect("accepted");
    assert_eq!(lab.ended().await[0]["workItem"]["blocksCopied"], 1);
    assert_eq!(lab.on(1), 3);
}

#[tokio::test]
async fn one_plan_at_a_time_runs_as_slowly_as_it_says_until_it_is_cancelled() {
    let lab = Lab::uneven(8, &FAST).await;
    let mut step = lab.step(0, 1, 8 * MIB);
    step["bandwidth"] = 2.into();
    let plan = lab.plan(&[step]);
    let began = std::time::Instant::now();
    lab.submit(&plan).expect("accepted");
    let second = lab.submit(&lab.plan(&[lab.step(0, 1, MIB)]));
    assert_eq!(second, Err("Executing another plan".to_owned()));
    let other = lab.balancer.cancel("something else").await;
    assert_eq!(other.expect_err("refused").0, "No such plan.");
    assert_eq!(lab.state().0, 1);
    while lab.on(1) < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The second replica moves when the half second of the first is over.
    assert!(began.elapsed() >= Duration::from_millis(500));
    lab.balancer
        .cancel(&plan_id(&plan.to_string()))
        .await
        .expect("runs");
    let (result, state) = lab.state();
    assert_eq!(result, 3);
    let moved = state[0]["workItem"]["blocksCopied"].as_u64().expect("some");
    assert_eq!(
        moved,
        lab.on(1) as u64,
        "what moves is told before the cancel is answered"
    );
    assert_eq!(lock(&lab.told).len(), lab.on(1));
    assert!(lab.on(0) >= 4, "{} left", lab.on(0));
    lab.submit(&lab.plan(&[lab.step(1, 0, MIB)]))
        .expect("the next one may begin");
    lab.ended().await;
}

#[tokio::test]
async fn a_stop_of_the_node_ends_the_plan_in_time() {
    let lab = Lab::uneven(4, &FAST).await;
    let mut step = lab.step(0, 1, 4 * MIB);
    step["bandwidth"] = 1.into();
    lab.submit(&lab.plan(&[step])).expect("accepted");
    lab.stop.cancel();
    lab.tasks.close();
    let ended = tokio::time::timeout(Duration::from_millis(900), lab.tasks.wait()).await;
    ended.expect("in time");
}

#[tokio::test]
async fn what_is_being_written_stays_and_so_does_all_on_memory() {
    let lab = Lab::new(&[StorageType::Disk, StorageType::RamDisk], &FAST).await;
    lab.put(1, MIB).await;
    lab.submit(&lab.plan(&[lab.step(0, 1, MIB)]))
        .expect("accepted");
    let item = &lab.ended().await[0]["workItem"];
    assert_eq!(
        item["errMsg"],
        "Disk Balancer - Unable to support transient storage type."
    );
    assert_eq!((lab.on(0), lab.on(1)), (1, 0));
    let lab = Lab::uneven(1, &FAST).await;
    let options = WriteOptions {
        storage_id: Some(lab.storage(0)),
        ..WriteOptions::default()
    };
    let _open = lab
        .store
        .create_rbw(&block(9), options)
        .await
        .expect("creates");
    lab.submit(&lab.plan(&[lab.step(0, 1, 8 * MIB)]))
        .expect("accepted");
    let item = &lab.ended().await[0]["workItem"];
    assert_eq!(item["errMsg"], "No source blocks found to move.");
    assert_eq!((lab.on(0), lab.on(1)), (0, 1));
    let open = lab.store.replica(&pool(), 9).expect("there");
    assert_eq!(*open.storage.id, *lab.storage(0));
}

#[tokio::test]
async fn errors_end_a_step_and_the_damaged_stay_where_they_are() {
    let lab = Lab::uneven(4, &FAST).await;
    let files = lab.dir.path().join("data0/current").join(pool().as_str());
    let files = files.join("current/finalized/subdir0/subdir0");
    for id in 1..=2 {
        std::fs::write(files.join(format!("blk_{id}")), "too short").expect("writes");
    }
    let mut step = lab.step(0, 1, 4 * MIB);
    step["maxDiskErrors"] = 1.into();
    lab.submit(&lab.plan(&[step])).expect("accepted");
    let item = &lab.ended().await[0]["workItem"];
    assert_eq!(
        (&item["errMsg"], &item["errorCount"]),
        (&json!("Error count exceeded."), &json!(2))
    );
    assert_eq!(item["maxDiskErrors"], 1);
    assert_eq!((lab.on(0), lab.on(1)), (4, 0));
    // The node's own limit bears them: what is sound moves.
    lab.submit(&lab.plan(&[lab.step(0, 1, 4 * MIB)]))
        .expect("accepted");
    let item = &lab.ended().await[0]["workItem"];
    assert_eq!(
        (&item["blocksCopied"], &item["errorCount"]),
        (&json!(2), &json!(2))
    );
    assert_eq!((lab.on(0), lab.on(1)), (2, 2));
}

#[tokio::test]
async fn a_step_larger_than_the_target_is_not_begun() {
    let lab = Lab::uneven(1, &FAST).await;
    let plan = lab.plan(&[lab.step(0, 1, i64::MAX.unsigned_abs())]);
    lab.submit(&plan).expect("accepted");
    let item = &lab.ended().await[0]["workItem"];
    let error = item["errMsg"].as_str().expect("told");
    assert!(
        error.starts_with("Destination volume: ") && error.contains("data1/ has "),
        "{error}"
    );
    assert_eq!((lab.on(0), lab.on(1)), (1, 0));
}

#[tokio::test]
async fn a_volume_that_fails_ends_its_step_and_the_rest_stays() {
    let lab = Lab::uneven(4, &FAST).await;
    let mut step = lab.step(0, 1, 4 * MIB);
    step["bandwidth"] = 4.into();
    lab.submit(&lab.plan(&[step])).expect("accepted");
    while lab.on(1) < 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let root = lab.dir.path().join("data1");
    let volumes = lab.store.state().volumes();
    let volume = volumes.iter().find(|v| v.root == root).expect("there");
    lab.store.fail_volume(volume).await;
    let item = &lab.ended().await[0]["workItem"];
    let gone = format!(
        "Disk Balancer - Unable to find dest volume: {}/",
        root.display()
    );
    assert_eq!(item["errMsg"], gone);
    assert!(lab.on(0) >= 2, "{} left", lab.on(0));
}
