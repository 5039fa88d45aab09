//! The disk balancer: moves replicas between the volumes of this node as the plan of an operator
//! says (`hdfs diskbalancer`).
//!
//! - `plan`: what a plan may say
//! - `mover`: carries the steps of a plan out
//! - `work`: how far a step is, and Apache's JSON for it
//!
//! One plan runs at a time, and a restart forgets it. Moves are the store's: a replica is copied,
//! verified and durable before its source goes, in the balancers' class of I/O.

mod mover;
mod plan;
mod work;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hayloft_conf::{SharedConfig, keys};
use hayloft_io::locks::lock;
use hayloft_store::{ReplicaRef, Store, VolumeSpace};
use hayloft_wire::proto::clientdatanode::{QueryPlanStatusResponse, SubmitDiskBalancerPlanRequest};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, info};

pub use plan::plan_id;
use work::Work;

/// How long a cancel waits for the move that is under way. It ends all the same.
const CANCEL_WAIT: Duration = Duration::from_secs(10);

/// Why a request is refused, in Apache's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRefused(pub String);

impl fmt::Display for PlanRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Hears of each replica that was moved.
pub type TellMoved = Arc<dyn Fn(&ReplicaRef) + Send + Sync>;

/// What the disk balancer works with.
pub struct DiskBalancerParts {
    /// The replicas.
    pub store: Store,
    /// The running configuration.
    pub config: SharedConfig,
    /// Tells NameNodes of a moved replica.
    pub tell: TellMoved,
    /// The node was started for an upgrade or a rollback: plans are refused.
    pub in_special_state: bool,
    /// What a stop of the node waits for.
    pub tasks: TaskTracker,
    /// Ends the plan that runs.
    pub stop: CancellationToken,
}

/// The disk balancer of a node.
pub struct DiskBalancer {
    parts: Arc<DiskBalancerParts>,
    plan: Mutex<Option<Arc<Execution>>>,
}

/// The plan that runs, or ran last.
struct Execution {
    id: String,
    file: String,
    steps: Vec<Mutex<Work>>,
    /// Cancelled when an operator ends it, or the node stops.
    stop: CancellationToken,
    /// Cancelled when nothing of it runs any more.
    ended: CancellationToken,
}

/// How a plan stands, by Apache's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    NoPlan = 0,
    UnderProgress = 1,
    Done = 2,
    Cancelled = 3,
}

impl Standing {
    fn of(plan: Option<&Execution>) -> Self {
        match plan {
            None => Self::NoPlan,
            Some(plan) if plan.stop.is_cancelled() => Self::Cancelled,
            Some(plan) if plan.ended.is_cancelled() => Self::Done,
            Some(_) => Self::UnderProgress,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::NoPlan => "NO_PLAN",
            Self::UnderProgress => "PLAN_UNDER_PROGRESS",
            Self::Done => "PLAN_DONE",
            Self::Cancelled => "PLAN_CANCELLED",
        }
    }
}

impl Execution {
    fn current_state(&self) -> Value {
        let steps = self.steps.iter();
        steps.map(|work| lock(work).to_json()).collect()
    }
}

/// The volume with that storage.
fn volume<'v>(volumes: &'v [VolumeSpace], storage: &str) -> Option<&'v VolumeSpace> {
    volumes.iter().find(|volume| *volume.storage.id == *storage)
}

impl DiskBalancer {
    /// Makes one that has no plan.
    #[must_use]
    pub fn new(parts: DiskBalancerParts) -> Self {
        Self {
            parts: Arc::new(parts),
            plan: Mutex::default(),
        }
    }

    /// Takes a plan and begins with it.
    ///
    /// # Errors
    /// What Apache's node says of such a plan.
    pub fn submit(&self, request: &SubmitDiskBalancerPlanRequest) -> Result<(), PlanRefused> {
        let parts = &self.parts;
        if parts.in_special_state {
            let text = "Datanode is in special state, e.g. Upgrade/Rollback etc. Disk balancing \
                not permitted.";
            return Err(PlanRefused(text.to_owned()));
        }
        self.check_enabled()?;
        let none_runs = |plan: &Option<Arc<Execution>>| match plan {
            Some(plan) if !plan.ended.is_cancelled() => {
                Err(PlanRefused("Executing another plan".to_owned()))
            }
            _ => Ok(()),
        };
        none_runs(&lock(&self.plan))?;
        // A long plan takes a while, and queries do not wait for it.
        let steps = plan::accept(request, &parts.store, &parts.config.current())?;
        let mut current = lock(&self.plan);
        none_runs(&current)?;
        let stop = parts.stop.child_token();
        let execution = Arc::new(Execution {
            id: request.plan_id.clone(),
            file: request.plan_file.clone(),
            steps: steps.into_iter().map(Mutex::new).collect(),
            stop,
            ended: CancellationToken::new(),
        });
        *current = Some(Arc::clone(&execution));
        info!(
            plan = execution.id,
            file = execution.file,
            "executing a disk balancer plan"
        );
        let parts = Arc::clone(parts);
        let work = async move {
            let _ended = execution.ended.clone().drop_guard();
            mover::run(&parts, &execution).await;
        };
        self.parts.tasks.spawn(work.in_current_span());
        Ok(())
    }

    /// Ends the plan with that id, if it runs, and waits for the move that is under way.
    ///
    /// # Errors
    /// There is no such plan, or the disk balancer is off.
    pub async fn cancel(&self, id: &str) -> Result<(), PlanRefused> {
        self.check_enabled()?;
        let plan = lock(&self.plan).clone();
        let Some(plan) = plan.filter(|plan| plan.id == id) else {
            return Err(PlanRefused("No such plan.".to_owned()));
        };
        if !plan.ended.is_cancelled() {
            info!(plan = id, "cancelling a disk balancer plan");
            plan.stop.cancel();
            let _in_time = tokio::time::timeout(CANCEL_WAIT, plan.ended.cancelled()).await;
        }
        Ok(())
    }

    /// How the plan stands.
    ///
    /// # Errors
    /// The disk balancer is off.
    pub fn query(&self) -> Result<QueryPlanStatusResponse, PlanRefused> {
        self.check_enabled()?;
        let plan = lock(&self.plan).clone();
        let state = plan.as_ref().map_or(json!([]), |p| p.current_state());
        let text = |of: fn(&Execution) -> &String| plan.as_ref().map(|p| of(p).clone());
        Ok(QueryPlanStatusResponse {
            result: Some(Standing::of(plan.as_deref()) as u32),
            plan_id: Some(text(|p| &p.id).unwrap_or_default()),
            current_status: Some(state.to_string()),
            plan_file: Some(text(|p| &p.file).unwrap_or_default()),
        })
    }

    /// The same as JSON in one string, for the bean; empty while the disk balancer is off.
    pub fn status(&self) -> String {
        if self.check_enabled().is_err() {
            return String::new();
        }
        let plan = lock(&self.plan).clone();
        let plan = plan.as_deref();
        json!({
            "currentState": plan.map_or(json!([]), Execution::current_state),
            "result": Standing::of(plan).name(),
            "planID": plan.map_or("", |p| &p.id),
            "planFile": plan.map_or("", |p| &p.file),
        })
        .to_string()
    }

    /// What the planner asks of a node before it makes a plan.
    ///
    /// # Errors
    /// It asks for something else, or the disk balancer is off.
    pub fn setting(&self, key: &str) -> Result<String, PlanRefused> {
        match key {
            "DiskBalancerVolumeName" => {
                self.check_enabled()?;
                let volumes = self.parts.store.volume_spaces().into_iter();
                let names: Map<String, Value> = volumes
                    .map(|v| (v.storage.id.to_string(), work::base_path(&v.path).into()))
                    .collect();
                Ok(Value::Object(names).to_string())
            }
            "DiskBalancerBandwidth" => {
                self.check_enabled()?;
                let bandwidth = self.parts.config.get(&keys::DISK_BALANCER_BANDWIDTH);
                Ok(bandwidth.to_string())
            }
            _ => Err(PlanRefused("Unknown key".to_owned())),
        }
    }

    fn check_enabled(&self) -> Result<(), PlanRefused> {
        if self.parts.config.get(&keys::DISK_BALANCER_ENABLED) {
            return Ok(());
        }
        Err(PlanRefused("Disk Balancer is not enabled.".to_owned()))
    }
}
