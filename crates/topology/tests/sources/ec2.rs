//! EC2's instance metadata and API.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::fake::{Answer, FakeServer, Got, ask, ok, place, settings, status};

const TOKEN: &str = "AQAEAHNvLW5vdC1hLXJlYWwtdG9rZW4tb2YtZWMyLWF0LWFsbA==";
const TOPOLOGY: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<DescribeInstanceTopologyResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\">
  <requestId>4c3a9b6b-example</requestId>
  <instanceSet><item>
    <instanceId>i-1111111111example</instanceId>
    <instanceType>hpc6a.48xlarge</instanceType>
    <networkNodeSet>
      <item>nn-1111111111example</item>
      <item>nn-2222222222example</item>
      <item>nn-3333333333example</item>
    </networkNodeSet>
    <availabilityZone>us-east-2b</availabilityZone><zoneId>use2-az2</zoneId>
  </item></instanceSet>
</DescribeInstanceTopologyResponse>";
const ROLE: &str = r#"{"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": "ASIAEXAMPLE",
  "SecretAccessKey": "secret", "Token": "session", "Expiration": "2030-01-01T00:00:00Z"}"#;

/// An instance without partition and dedicated host, with a role that may ask the API.
fn instance(got: &Got) -> Answer {
    match (got.method.as_str(), got.path.as_str()) {
        ("PUT", "/latest/api/token") => {
            assert_eq!(got.header("x-aws-ec2-metadata-token-ttl-seconds"), "60");
            return ok(TOKEN);
        }
        ("GET", path) if path.starts_with("/?Action=DescribeInstanceTopology") => return api(got),
        _ => {}
    }
    if got.header("x-aws-ec2-metadata-token") != TOKEN {
        return status(401);
    }
    match got
        .path
        .strip_prefix("/latest/meta-data/")
        .unwrap_or_default()
    {
        "placement/availability-zone" => ok("us-east-2b"),
        "placement/region" => ok("us-east-2"),
        "instance-id" => ok("i-1111111111example"),
        "services/domain" => ok("amazonaws.com"),
        "iam/security-credentials/" => ok("data-node-role"),
        "iam/security-credentials/data-node-role" => ok(ROLE),
        _ => status(404),
    }
}

fn api(got: &Got) -> Answer {
    let signed = got.header("authorization");
    let scope = "/us-east-2/ec2/aws4_request, SignedHeaders=host;x-amz-date;x-amz-security-token, ";
    assert!(
        signed.starts_with("AWS4-HMAC-SHA256 Credential=ASIAEXAMPLE/"),
        "{signed}"
    );
    assert!(signed.contains(scope), "{signed}");
    assert_eq!(got.header("x-amz-security-token"), "session");
    assert!(
        got.path
            .contains("&InstanceId.1=i-1111111111example&Version=2016-11-15")
    );
    ok(TOPOLOGY)
}

/// The same, but for some paths.
fn but(changes: &'static [(&'static str, u16, &'static str)]) -> FakeServer {
    FakeServer::start(move |got| {
        let change = changes.iter().find(|(path, ..)| got.path.contains(path));
        match change {
            Some((_, code, body)) => Answer::Says(*code, "", (*body).to_owned()),
            None => instance(got),
        }
    })
}

#[test]
fn the_network_node_next_to_the_instance_is_the_rack() {
    let found = ask("ec2", &settings(&FakeServer::start(instance)));
    assert_eq!(place(&found), ("/us-east-2b/nn-3333333333example", None));
}

#[test]
fn a_partition_has_its_own_racks_and_the_api_is_not_asked() {
    let server = but(&[
        ("placement/group-name", 200, "hdfs"),
        ("placement/partition-number", 200, "3"),
        ("DescribeInstanceTopology", 500, ""),
    ]);
    let found = ask("ec2", &settings(&server));
    assert_eq!(place(&found), ("/us-east-2b/hdfs-p3", None));
    assert_eq!(server.count(), 5, "token, zone, host, partition, group");
}

#[test]
fn a_dedicated_host_is_host_and_rack() {
    let found = ask(
        "ec2",
        &settings(&but(&[("placement/host-id", 200, "h-0123abc")])),
    );
    assert_eq!(place(&found), ("/us-east-2b/h-0123abc", Some("h-0123abc")));
}

#[test]
fn without_permission_or_role_the_zone_is_known() {
    const DENIED: &str = "<Response><Errors><Error><Code>UnauthorizedOperation</Code></Error>\
        </Errors></Response>";
    let cases = [
        (
            but(&[("DescribeInstanceTopology", 403, DENIED)]),
            "UnauthorizedOperation",
        ),
        (but(&[("iam/", 404, "")]), "no role"),
        (
            but(&[("security-credentials/data", 200, "{\"Code\": \"Failed\"}")]),
            "not what",
        ),
        (
            but(&[("security-credentials/", 200, "../../x?y")]),
            "no role's name",
        ),
        (
            but(&[("DescribeInstanceTopology", 200, "<a><b>")]),
            "knows nothing",
        ),
        (
            but(&[("DescribeInstanceTopology", 302, "")]),
            "not followed",
        ),
    ];
    for (server, why) in cases {
        let found = ask("ec2", &settings(&server));
        assert_eq!(place(&found), ("/us-east-2b/unplaced", None));
        let how = found.expect("a place").how.join("; ");
        assert!(how.contains(why), "{how}");
    }
}

#[test]
fn an_answer_about_another_instance_is_not_ours() {
    let server = FakeServer::start(|got| match got.path.contains("Action=") {
        true => ok(&TOPOLOGY.replace("i-1111111111example", "i-2")),
        false => instance(got),
    });
    let how = ask("ec2", &settings(&server))
        .expect("a place")
        .how
        .join("; ");
    assert!(how.contains("another instance"), "{how}");
}

/// Half an answer would give a rack that changes when the rest comes.
#[test]
fn half_an_answer_is_none() {
    for path in [
        "placement/host-id",
        "placement/partition-number",
        "availability-zone",
    ] {
        let server = FakeServer::start(move |got| match got.path.contains(path) {
            true => status(500),
            false => instance(got),
        });
        let said = ask("ec2", &settings(&server)).expect_err("half");
        assert!(said.contains("answered 500"), "{said}");
    }
    let said = ask("ec2", &settings(&but(&[("partition-number", 200, "1")])));
    assert!(said.expect_err("half").contains("group-name"));
}

#[test]
fn a_refused_token_and_a_redirect_are_said_and_not_followed() {
    let said = ask("ec2", &settings(&but(&[("api/token", 403, "")]))).expect_err("refused");
    assert!(said.contains("no token, answered 403"), "{said}");
    let reached = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&reached);
    let elsewhere = FakeServer::start(move |_| {
        seen.store(true, Ordering::Relaxed);
        ok(TOKEN)
    });
    let head: &'static str = format!("Location: {}/token\r\n", elsewhere.url()).leak();
    let server = FakeServer::start(move |_| Answer::Says(307, head, String::new()));
    let said = ask("ec2", &settings(&server)).expect_err("elsewhere");
    assert!(said.contains("not followed"), "{said}");
    assert!(
        !reached.load(Ordering::Relaxed),
        "the redirect was followed"
    );
}

#[test]
fn names_that_are_no_path_are_refused() {
    let server = but(&[
        ("group-name", 200, "../../x"),
        ("partition-number", 200, "1"),
    ]);
    let said = ask("ec2", &settings(&server)).expect_err("unsafe");
    assert!(said.contains("no safe name"), "{said}");
}

#[test]
fn a_signed_call_goes_over_tls_or_stays_here() {
    let server = FakeServer::start(instance);
    let mut settings = settings(&server);
    settings.ec2_endpoint = Some("http://192.0.2.1".parse().expect("an address"));
    let how = ask("ec2", &settings).expect("a place").how.join("; ");
    assert!(how.contains("https only"), "{how}");
}
