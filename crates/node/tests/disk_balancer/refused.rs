//! Orders that are refused, and what makes no sense.

use hayloft_store::now_ms;
use hayloft_wire::proto::clientdatanode::SubmitDiskBalancerPlanRequest;
use serde_json::{Value, json};

use super::{Lab, MIB, request};

#[tokio::test]
async fn plans_that_are_wrong_are_refused_in_apaches_words_and_in_its_order() {
    let lab = Lab::uneven(2, &[]).await;
    let good = lab.plan(&[lab.step(0, 1, MIB)]);
    let with = |change: &dyn Fn(&mut Value)| {
        let mut plan = good.clone();
        change(&mut plan);
        lab.submit(&plan).expect_err("refused")
    };
    let raw = |change: &dyn Fn(&mut SubmitDiskBalancerPlanRequest)| {
        let mut request = request(&good.to_string());
        change(&mut request);
        lab.balancer.submit(&request).expect_err("refused").0
    };
    for version in [0, 2, u64::MAX] {
        assert_eq!(
            raw(&|r| r.plan_version = Some(version)),
            "Invalid plan version."
        );
    }
    assert_eq!(raw(&|r| r.plan.clear()), "Invalid plan.");
    assert_eq!(raw(&|r| r.plan_file = "x".repeat(1 << 20)), "Invalid plan.");
    let hashes = [
        String::new(),
        "0".repeat(40),
        "a".repeat(39),
        "é".repeat(20),
    ];
    for id in hashes {
        assert_eq!(
            raw(&|r| r.plan_id.clone_from(&id)),
            "Invalid or mis-matched hash."
        );
    }
    let deep = "[".repeat(100_000);
    let unknown = good.to_string().replace("nodeName", "name");
    let class = good
        .to_string()
        .replace("planner.MoveStep", "planner.Other");
    let text = good.to_string().replace(&MIB.to_string(), "\"much\"");
    let cut = &good.to_string()[..200];
    for json in [
        "{", "null", "[]", "7", "\u{0}", &deep, &unknown, &class, &text, cut,
    ] {
        let refused = lab.balancer.submit(&request(json)).expect_err("refused").0;
        assert_eq!(refused, "Parsing plan failed.", "{json:.80}");
    }
    let long = format!("{}{}", good, " ".repeat(5 << 20));
    let refused = lab.balancer.submit(&request(&long)).expect_err("refused").0;
    assert_eq!(refused, "Invalid plan.");
    let missing = with(&|p| p["volumeSetPlans"][0]["sourceVolume"] = Value::Null);
    assert_eq!(missing, "Parsing plan failed.");
    let old = "Plan was generated more than 1d ago";
    for time in [0, i64::MIN, 1_000_000] {
        assert_eq!(with(&|p| p["timeStamp"] = time.into()), old);
    }
    let other = with(&|p| p["nodeUUID"] = "another".into());
    assert_eq!(other, "Plan was generated for another node.");
    let volume = |end: &'static str| {
        with(&|p: &mut Value| p["volumeSetPlans"][0][end]["uuid"] = "DS-none".into())
    };
    assert_eq!(
        volume("sourceVolume"),
        "Disk Balancer - Unable to find source volume: /planned/0. SubmitPlan failed."
    );
    assert_eq!(
        volume("destinationVolume"),
        "Disk Balancer - Unable to find dest volume: /planned/1. SubmitPlan failed."
    );
    let same = lab
        .submit(&lab.plan(&[lab.step(1, 1, MIB)]))
        .expect_err("refused");
    let id = lab.storage(1);
    assert_eq!(
        same,
        format!("Disk Balancer - Source and destination volumes are same: {id}")
    );
    // Nothing was begun, and nothing remembered.
    assert_eq!(lab.state(), (0, json!([])));
    assert_eq!((lab.on(0), lab.on(1)), (2, 0));
}

#[tokio::test]
async fn fields_of_the_wrong_type_are_refused_also_where_nothing_looks_at_them() {
    let lab = Lab::uneven(2, &[]).await;
    let good = lab.plan(&[lab.step(0, 1, MIB)]);
    let volume = "/volumeSetPlans/0/destinationVolume";
    for (of, name, value) in [
        ("", "port", json!("nine")),
        ("", "port", json!(1_u64 << 31)),
        ("", "nodeName", json!(["127.0.0.1"])),
        ("", "timeStamp", json!("now")),
        ("/volumeSetPlans/0", "idealStorage", json!(true)),
        ("/volumeSetPlans/0", "volumeSetID", json!({})),
        ("/volumeSetPlans/0", "bandwidth", json!("much")),
        (volume, "capacity", json!("large")),
        (volume, "volumeDataDensity", json!([0.5])),
        (volume, "readOnly", json!(0.5)),
        (volume, "path", json!({})),
    ] {
        let mut plan = good.clone();
        plan.pointer_mut(of).expect("there")[name] = value.clone();
        let refused = lab.submit(&plan).expect_err("refused");
        assert_eq!(refused, "Parsing plan failed.", "{of}/{name}: {value}");
    }
    assert_eq!(lab.state(), (0, json!([])));
    // What a later version says beside it is no reason.
    let mut plan = good;
    plan.pointer_mut(volume).expect("there")["later"] = json!([1]);
    assert_eq!(lab.submit(&plan), Ok(()));
    lab.ended().await;
}

#[tokio::test]
async fn an_old_plan_runs_when_its_date_is_not_to_be_checked() {
    let lab = Lab::uneven(2, &[("dfs.disk.balancer.plan.valid.interval", "5")]).await;
    let mut plan = lab.plan(&[lab.step(0, 1, MIB)]);
    plan["timeStamp"] = (now_ms() - 1000).into();
    let refused = lab.submit(&plan).expect_err("refused");
    assert_eq!(refused, "Plan was generated more than 5ms ago");
    let mut request = request(&plan.to_string());
    request.ignore_date_check = Some(true);
    request.plan_version = None;
    lab.balancer.submit(&request).expect("accepted");
    lab.ended().await;
    assert_eq!(lab.on(1), 1);
}

#[tokio::test]
async fn a_disk_balancer_that_is_off_says_so_and_nothing_else() {
    let lab = Lab::uneven(1, &[("dfs.disk.balancer.enabled", "false")]).await;
    let off = "Disk Balancer is not enabled.";
    assert_eq!(lab.submit(&lab.plan(&[])), Err(off.to_owned()));
    assert_eq!(lab.balancer.query().expect_err("off").0, off);
    assert_eq!(lab.balancer.cancel("").await.expect_err("off").0, off);
    for key in ["DiskBalancerVolumeName", "DiskBalancerBandwidth"] {
        assert_eq!(lab.balancer.setting(key).expect_err("off").0, off);
    }
    assert_eq!(lab.balancer.status(), "");
}

#[tokio::test]
async fn the_planner_learns_volumes_and_bandwidth() {
    let lab = Lab::uneven(0, &[]).await;
    let names = lab
        .balancer
        .setting("DiskBalancerVolumeName")
        .expect("known");
    let names: Value = serde_json::from_str(&names).expect("JSON");
    let path = |n: usize| format!("{}/data{n}/", lab.dir.path().display());
    let wanted = json!({lab.storage(0): path(0), lab.storage(1): path(1)});
    assert_eq!(names, wanted);
    assert_eq!(
        lab.balancer
            .setting("DiskBalancerBandwidth")
            .expect("known"),
        "10"
    );
    let unknown = lab
        .balancer
        .setting("DiskBalancerSecrets")
        .expect_err("refused");
    assert_eq!(unknown.0, "Unknown key");
}

#[tokio::test]
async fn numbers_that_make_no_sense_move_nothing_and_break_nothing() {
    let odd = [
        ("dfs.disk.balancer.max.disk.throughputInMBperSec", "-1"),
        ("dfs.disk.balancer.block.tolerance.percent", "0"),
        ("dfs.disk.balancer.max.disk.errors", "-7"),
    ];
    let lab = Lab::uneven(1, &odd).await;
    for bytes in [-1, i64::MIN] {
        let mut step = lab.step(0, 1, 0);
        step["bytesToMove"] = bytes.into();
        lab.submit(&lab.plan(&[step])).expect("accepted");
        lab.ended().await;
        assert_eq!(lab.on(1), 0);
    }
}
