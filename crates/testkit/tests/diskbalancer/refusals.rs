//! Orders by a client of our own that are wrong. Nodes of either kind refuse them in the same
//! words.

use crate::{BLOCK, Lab, NODES};
use hayloft_node::disk_balancer::plan_id;
use hayloft_rpc::{CLIENT_DATANODE_PROTOCOL, RpcClient, RpcError, RpcOptions, current_user};
use hayloft_testkit::error::Result;
use hayloft_testkit::suite::{expect, expect_eq, passed};
use hayloft_testkit::{Outcome, TestkitError};
use hayloft_wire::proto::clientdatanode::{
    CancelPlanRequest, CancelPlanResponse, DiskBalancerSettingRequest, DiskBalancerSettingResponse,
    SubmitDiskBalancerPlanRequest, SubmitDiskBalancerPlanResponse,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

const DAY_MS: u128 = 24 * 3600 * 1000;

pub fn request(plan: &str) -> SubmitDiskBalancerPlanRequest {
    SubmitDiskBalancerPlanRequest {
        plan_id: plan_id(plan),
        plan: plan.to_owned(),
        plan_version: Some(1),
        ignore_date_check: Some(false),
        plan_file: "/plans/none".to_owned(),
    }
}

/// Class and first line of a refusal.
fn refusal<T: std::fmt::Debug>(answer: std::result::Result<T, RpcError>) -> String {
    match answer {
        Err(RpcError::Remote { class, message, .. }) => {
            format!("{class}: {}", message.lines().next().unwrap_or_default())
        }
        other => format!("{other:?}"),
    }
}

impl Lab {
    /// A plan of one step.
    pub fn plan_json(
        &mut self,
        node: usize,
        (source, target): (usize, usize),
        bytes: u64,
        bandwidth: u64,
    ) -> Result<Value> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_millis());
        let mut volume = |volume: usize| -> Result<Value> {
            Ok(json!({
                "path": format!("/disk{volume}"), "capacity": 1_000_000, "storageType": "DISK",
                "used": 10, "reserved": 0, "uuid": self.version_of(node, volume, "storageID")?,
            }))
        };
        let (source, target) = (volume(source)?, volume(target)?);
        Ok(json!({
            "volumeSetPlans": [{
                "@class": "org.apache.hadoop.hdfs.server.diskbalancer.planner.MoveStep",
                "sourceVolume": source, "destinationVolume": target, "idealStorage": 0.5,
                "bytesToMove": bytes, "volumeSetID": "a-set", "bandwidth": bandwidth,
            }],
            "nodeName": "127.0.0.1",
            "port": self.cluster.node(node).ipc().rsplit(':').next().and_then(|p| {
                p.parse::<u16>().ok()
            }),
            "nodeUUID": self.version_of(node, 0, "datanodeUuid")?,
            "timeStamp": u64::try_from(now).unwrap_or(0),
        }))
    }

    pub fn refusals(&mut self) -> Result<Outcome> {
        let runtime = tokio::runtime::Runtime::new();
        let runtime = runtime.map_err(|error| TestkitError::Talk(error.to_string()))?;
        let mut answers = Vec::new();
        for node in NODES {
            let before = self.counts(node);
            let wrong = self.wrong_plans(node)?;
            let ipc = self.cluster.node(node).ipc();
            let of_node = runtime.block_on(async {
                let options = RpcOptions {
                    user: current_user(),
                    ..RpcOptions::default()
                };
                let client = RpcClient::new(ipc, CLIENT_DATANODE_PROTOCOL, options);
                let mut said = BTreeMap::new();
                for (what, request) in wrong {
                    let answer: std::result::Result<SubmitDiskBalancerPlanResponse, _> =
                        client.call("submitDiskBalancerPlan", &request).await;
                    said.insert(what, refusal(answer));
                }
                let key = "a key".to_owned();
                let setting: std::result::Result<DiskBalancerSettingResponse, _> = client
                    .call(
                        "getDiskBalancerSetting",
                        &DiskBalancerSettingRequest { key },
                    )
                    .await;
                said.insert("unknown setting", refusal(setting));
                let plan_id = "b".repeat(40);
                let cancelled: std::result::Result<CancelPlanResponse, _> = client
                    .call("cancelDiskBalancerPlan", &CancelPlanRequest { plan_id })
                    .await;
                said.insert("cancel of another", refusal(cancelled));
                let key = "DiskBalancerBandwidth".to_owned();
                let setting: std::result::Result<DiskBalancerSettingResponse, _> = client
                    .call(
                        "getDiskBalancerSetting",
                        &DiskBalancerSettingRequest { key },
                    )
                    .await;
                said.insert("bandwidth", format!("{setting:?}"));
                said
            });
            expect_eq("replicas", self.counts(node), before)?;
            answers.push(of_node);
        }
        for (what, said) in &answers[0] {
            expect_eq(what, said, &answers[1][what])?;
            let refused = said.contains("DiskBalancerException: ");
            expect(refused || *what == "bandwidth", || {
                format!("{what}: {said}")
            })?;
        }
        passed()
    }

    fn wrong_plans(
        &mut self,
        node: usize,
    ) -> Result<Vec<(&'static str, SubmitDiskBalancerPlanRequest)>> {
        let good = self.plan_json(node, (0, 1), BLOCK, 0)?;
        let mut all = Vec::new();
        let text = good.to_string();
        let as_json: [(&str, String); 5] = [
            ("cut", text[..text.len() / 2].to_owned()),
            ("foreign", "{\"a\": [1, 2]}".to_owned()),
            ("deep", "[".repeat(20_000)),
            (
                "another step",
                text.replace("planner.MoveStep", "planner.Other"),
            ),
            ("an unknown field", text.replace("\"port\"", "\"portal\"")),
        ];
        all.extend(as_json.map(|(what, json)| (what, request(&json))));
        let mut changed = |what, change: &dyn Fn(&mut Value)| {
            let mut plan = good.clone();
            change(&mut plan);
            all.push((what, request(&plan.to_string())));
        };
        for (what, field, value) in [
            ("a port of words", "/port", json!("nine")),
            ("a port that is too large", "/port", json!(1_u64 << 31)),
            ("a list of names", "/nodeName", json!(["127.0.0.1"])),
            (
                "half of a truth",
                "/volumeSetPlans/0/idealStorage",
                json!(true),
            ),
            (
                "a capacity of words",
                "/volumeSetPlans/0/sourceVolume/capacity",
                json!("large"),
            ),
            (
                "a flag of a number with a fraction",
                "/volumeSetPlans/0/sourceVolume/readOnly",
                json!(0.5),
            ),
            (
                "a volume that is a list",
                "/volumeSetPlans/0/sourceVolume",
                json!(["DS-1", "/a"]),
            ),
        ] {
            let (of, name) = field.rsplit_once('/').unwrap_or_default();
            changed(what, &|p| {
                if let Some(of) = p.pointer_mut(of) {
                    of[name] = value.clone();
                }
            });
        }
        let old = good["timeStamp"].as_u64().unwrap_or(0);
        let old = u128::from(old).saturating_sub(DAY_MS + 60_000);
        changed("expired", &|p| {
            p["timeStamp"] = json!(u64::try_from(old).unwrap_or(0))
        });
        changed("of another node", &|p| p["nodeUUID"] = json!("another"));
        changed("unknown source", &|p| {
            p["volumeSetPlans"][0]["sourceVolume"]["uuid"] = json!("DS-none");
        });
        changed("unknown target", &|p| {
            p["volumeSetPlans"][0]["destinationVolume"]["uuid"] = json!("DS-none");
        });
        let mut sent = |what, change: &dyn Fn(&mut SubmitDiskBalancerPlanRequest)| {
            let mut request = request(&text);
            change(&mut request);
            all.push((what, request));
        };
        sent("version 0", &|r| r.plan_version = Some(0));
        sent("version 2", &|r| r.plan_version = Some(2));
        sent("empty", &|r| r.plan.clear());
        sent("no hash", &|r| r.plan_id.clear());
        sent("a short hash", &|r| r.plan_id.truncate(39));
        sent("another hash", &|r| r.plan_id = "a".repeat(40));
        Ok(all)
    }
}
