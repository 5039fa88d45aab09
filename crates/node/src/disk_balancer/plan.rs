//! What a plan may say. It is looked at in Apache's order, so that a plan with two faults is
//! refused for the same one.

use std::fmt::Write as _;

use hayloft_conf::{Configuration, keys};
use hayloft_store::{Store, VolumeSpace, now_ms};
use hayloft_wire::proto::clientdatanode::SubmitDiskBalancerPlanRequest;
use serde::Deserialize;
use sha1::{Digest as _, Sha1};

use super::work::Work;
use super::{PlanRefused, volume};

/// Longest plan that is read, in bytes: that of some hundred volumes has 1 MiB.
const PLAN_BYTES_MAX: usize = 4 << 20;
/// Longest name of a plan's file. Names in HDFS are shorter.
const FILE_BYTES_MAX: usize = 16 << 10;
/// Characters of a volume's path that a refusal tells.
const PATH_TOLD_MAX: usize = 4096;
/// The only version of plans that there is.
const VERSION: u64 = 1;
/// The only kind of step.
const MOVE_STEP: &str = "org.apache.hadoop.hdfs.server.diskbalancer.planner.MoveStep";

/// A plan as Apache's planner writes it. Also what nothing looks at is of its type, or the plan is
/// refused. Jackson would take texts of numbers, too, which no planner writes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NodePlan {
    #[serde(default)]
    volume_set_plans: Vec<MoveStep>,
    #[serde(rename = "nodeUUID")]
    node_uuid: Option<String>,
    #[serde(default)]
    time_stamp: i64,
    #[serde(rename = "nodeName")]
    _node_name: Option<String>,
    #[serde(rename = "uri")]
    _uri: Option<String>,
    #[serde(rename = "port")]
    _port: Option<i32>,
}

/// A step. Numbers that are 0 are left out.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MoveStep {
    #[serde(rename = "@class")]
    class: String,
    source_volume: PlannedVolume,
    destination_volume: PlannedVolume,
    #[serde(default)]
    bytes_to_move: i64,
    #[serde(default)]
    max_disk_errors: i64,
    #[serde(default)]
    tolerance_percent: i64,
    #[serde(default)]
    bandwidth: i64,
    #[serde(rename = "idealStorage")]
    _ideal_storage: Option<Real>,
    #[serde(rename = "volumeSetID")]
    _volume_set_id: Option<String>,
}

/// A volume in a step: most of what is said of it is as old as the plan.
#[derive(Deserialize)]
struct PlannedVolume {
    uuid: Option<String>,
    path: Option<String>,
    #[serde(rename = "storageType")]
    _storage_type: Option<String>,
    #[serde(rename = "capacity")]
    _capacity: Option<i64>,
    #[serde(rename = "used")]
    _used: Option<i64>,
    #[serde(rename = "reserved")]
    _reserved: Option<i64>,
    #[serde(rename = "volumeDataDensity")]
    _density: Option<Real>,
    #[serde(rename = "failed")]
    _failed: Option<bool>,
    #[serde(rename = "skip")]
    _skip: Option<bool>,
    #[serde(rename = "transient")]
    _transient: Option<bool>,
    #[serde(rename = "readOnly")]
    _read_only: Option<bool>,
}

/// A number, or the word `NaN`: JSON has none for it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Real {
    Number(#[expect(dead_code, reason = "nothing looks at it")] f64),
    Word(#[expect(dead_code, reason = "the same")] String),
}

/// The steps of a plan that may run here now.
///
/// # Errors
/// What Apache's node says of it.
pub(super) fn accept(
    request: &SubmitDiskBalancerPlanRequest,
    store: &Store,
    config: &Configuration,
) -> Result<Vec<Work>, PlanRefused> {
    if request.plan_version.unwrap_or(VERSION) != VERSION {
        return Err(refused("Invalid plan version."));
    }
    let plan = &request.plan;
    let too_long = plan.len() > PLAN_BYTES_MAX || request.plan_file.len() > FILE_BYTES_MAX;
    if plan.is_empty() || too_long {
        return Err(refused("Invalid plan."));
    }
    if !request.plan_id.eq_ignore_ascii_case(&plan_id(plan)) {
        return Err(refused("Invalid or mis-matched hash."));
    }
    let plan = parse(plan).ok_or_else(|| refused("Parsing plan failed."))?;
    if !request.ignore_date_check.unwrap_or(false) {
        check_date(plan.time_stamp, config)?;
    }
    if plan.node_uuid.as_ref() != Some(&store.datanode_uuid()) {
        return Err(refused("Plan was generated for another node."));
    }
    let volumes = store.volume_spaces();
    let mut works = Vec::new();
    for step in plan.volume_set_plans {
        add(&mut works, step, &volumes)?;
    }
    Ok(works)
}

fn refused(text: impl Into<String>) -> PlanRefused {
    PlanRefused(text.into())
}

/// SHA-1 in hexadecimal digits: the id of a plan.
#[must_use]
pub fn plan_id(plan: &str) -> String {
    Sha1::digest(plan)
        .iter()
        .fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

fn parse(plan: &str) -> Option<NodePlan> {
    let plan: NodePlan = serde_json::from_str(plan).ok()?;
    let known = plan.volume_set_plans.iter().all(|s| s.class == MOVE_STEP);
    known.then_some(plan)
}

fn check_date(made_ms: i64, config: &Configuration) -> Result<(), PlanRefused> {
    let key = &keys::DISK_BALANCER_PLAN_VALID;
    let valid_ms = i64::try_from(config.get(key).as_millis()).unwrap_or(i64::MAX);
    let now = i64::try_from(now_ms()).unwrap_or(i64::MAX);
    if made_ms.saturating_add(valid_ms) >= now {
        return Ok(());
    }
    let mut valid = config.text(key.name()).unwrap_or_else(|| "1d".to_owned());
    if matches!(valid.as_bytes(), [b'0'..=b'9']) {
        valid.push_str("ms");
    }
    let text = format!("Plan was generated more than {valid} ago");
    Err(refused(text))
}

/// Adds a step. What two steps move between the same volumes is one step.
fn add(works: &mut Vec<Work>, step: MoveStep, volumes: &[VolumeSpace]) -> Result<(), PlanRefused> {
    let source = find(volumes, "source", &step.source_volume)?;
    let target = find(volumes, "dest", &step.destination_volume)?;
    let id = &source.storage.id;
    if *id == target.storage.id {
        let text = format!("Disk Balancer - Source and destination volumes are same: {id}");
        return Err(refused(text));
    }
    let mut work = Work::between(source, target);
    work.bytes_to_copy = step.bytes_to_move;
    work.bandwidth = step.bandwidth;
    work.tolerance_percent = step.tolerance_percent;
    work.max_disk_errors = step.max_disk_errors;
    match works.iter_mut().find(|w| w.is_beside(&work)) {
        Some(same) => {
            work.bytes_to_copy = work.bytes_to_copy.saturating_add(same.bytes_to_copy);
            *same = work;
        }
        None => works.push(work),
    }
    Ok(())
}

fn find<'v>(
    volumes: &'v [VolumeSpace],
    which: &str,
    planned: &PlannedVolume,
) -> Result<&'v VolumeSpace, PlanRefused> {
    let found = planned.uuid.as_deref().and_then(|id| volume(volumes, id));
    found.ok_or_else(|| {
        let path = planned.path.as_deref().unwrap_or("null");
        let path: String = path.chars().take(PATH_TOLD_MAX).collect();
        refused(format!(
            "Disk Balancer - Unable to find {which} volume: {path}. SubmitPlan failed."
        ))
    })
}
