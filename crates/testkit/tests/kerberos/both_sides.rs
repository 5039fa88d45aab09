//! The RPC client and the RPC server of ours with each other, and with nodes.

use bytes::Bytes;
use hayloft_rpc::server::fault::RpcFault;
use hayloft_rpc::server::{Caller, Limits, RpcCall, RpcServerSecurity, Service, serve};
use hayloft_rpc::{
    CLIENT_DATANODE_PROTOCOL, INTER_DATANODE_PROTOCOL, KerberosLogin, LoginSource, Protocol,
    RpcClient, RpcError, RpcOptions, RpcQuality, RpcSecurity, ServerPrincipal,
};
use hayloft_testkit::error::Result;
use hayloft_testkit::realm::{REALM, Realm};
use hayloft_testkit::suite::{expect, expect_eq, passed};
use hayloft_testkit::{Outcome, Suite, TestkitError};
use hayloft_wire::frame;
use hayloft_wire::proto::clientdatanode::{
    GetDatanodeInfoRequest, GetDatanodeInfoResponse, TriggerBlockReportRequest,
    TriggerBlockReportResponse,
};
use hayloft_wire::proto::reconfiguration::ListReconfigurablePropertiesResponse as Names;
use hayloft_wire::rpc::{RpcSasl, SaslAuth, SaslState, encode_sasl_request};
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{at_localhost, realm};

const PROTOCOL: Protocol = CLIENT_DATANODE_PROTOCOL;
/// Far more than one wrapped message holds.
const LARGE_BYTES: usize = 3 << 20;

pub fn cases(suite: &mut Suite) {
    let mut on = suite.group(realm, |realm: Realm, _| drop(realm));
    for quality in [
        RpcQuality::Authentication,
        RpcQuality::Integrity,
        RpcQuality::Privacy,
    ] {
        on.case(
            format!("large_calls_both_ways_{}", quality.name()),
            move |realm| on_threads(large_calls(realm, quality)),
        );
    }
    on.case("qualities_are_taken_in_order", |realm| {
        on_threads(in_order(realm))
    });
    on.case("who_is_not_expected_is_refused", |realm| {
        on_threads(unexpected(realm))
    });
    on.case("a_client_that_stops_halfway_costs_nothing", |realm| {
        on_threads(halfway(realm))
    });
}

pub fn on_threads<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Runtime::new();
    let runtime = runtime.map_err(|error| TestkitError::Talk(error.to_string()))?;
    runtime.block_on(work)
}

/// Gives back what it gets, and says who called.
struct Echo(Arc<RpcServerSecurity>);

impl Service for Echo {
    fn security(&self) -> Option<Arc<RpcServerSecurity>> {
        Some(Arc::clone(&self.0))
    }

    async fn authorize(&self, _caller: &Caller) -> std::result::Result<(), String> {
        Ok(())
    }

    async fn call(&self, call: RpcCall) -> std::result::Result<Bytes, RpcFault> {
        if call.method == "who" {
            let name = vec![format!(
                "{:?}/{:?}",
                call.caller.user, call.caller.real_user
            )];
            return Ok(frame::delimited(&Names { name }));
        }
        let names: std::result::Result<Names, _> = frame::decode(call.request);
        let names = names.map_err(|error| RpcFault::io(error.to_string()))?;
        Ok(frame::delimited(&names))
    }
}

struct Echoing {
    address: String,
    stop: CancellationToken,
}

impl Drop for Echoing {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn echoing(realm: &Realm, qualities: &[RpcQuality]) -> Result<Echoing> {
    let keytab = realm.keytab("echo.keytab", &["echo/localhost"])?;
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.map_err(|error| TestkitError::Talk(error.to_string()))?;
    let address = listener.local_addr();
    let address = address.map_err(|error| TestkitError::Talk(error.to_string()))?;
    let security = RpcServerSecurity {
        principal: at_localhost("echo"),
        keytab,
        qualities: qualities.into(),
    };
    let stop = CancellationToken::new();
    let service = Echo(Arc::new(security));
    tokio::spawn(serve(listener, service, Limits::default(), stop.clone()));
    Ok(Echoing {
        address: address.to_string(),
        stop,
    })
}

/// A client that calls as `name`, and takes the server for `server`.
fn client(
    address: &str,
    (name, keytab): (&str, &Path),
    server: &str,
    qualities: &[RpcQuality],
) -> RpcClient {
    let options = proving((name, keytab), server, qualities);
    RpcClient::new(address, PROTOCOL, options)
}

/// How `name` proves who it is, to `server`.
pub fn proving(
    (name, keytab): (&str, &Path),
    server: &str,
    qualities: &[RpcQuality],
) -> RpcOptions {
    let login = KerberosLogin::from(LoginSource::Keytab {
        principal: format!("{name}@{REALM}"),
        path: keytab.to_owned(),
    });
    RpcOptions {
        security: Some(RpcSecurity {
            login,
            server: ServerPrincipal {
                key: "the.test.principal",
                principal: Some(server.to_owned()),
                pattern: None,
            },
            qualities: qualities.into(),
        }),
        ..RpcOptions::default()
    }
}

fn failed(error: RpcError) -> TestkitError {
    TestkitError::Talk(error.to_string())
}

async fn large_calls(realm: &Realm, quality: RpcQuality) -> Result<Outcome> {
    let server = echoing(realm, &[quality]).await?;
    let keytab = realm.keytab("caller.keytab", &["caller"])?;
    let of = ("caller", keytab.as_path());
    let client = client(&server.address, of, &at_localhost("echo"), &[quality]);
    let who: Names = client
        .call("who", &Names::default())
        .await
        .map_err(failed)?;
    let expected = format!("Some(\"caller@{REALM}\")/None");
    expect_eq("caller", who.name.join(""), expected)?;
    let calls = (0..8usize).map(|n| {
        let (client, size) = (client.clone(), if n % 2 == 0 { LARGE_BYTES + n } else { n });
        async move {
            let name = vec!["x".repeat(size)];
            let sent = Names { name };
            let back: Names = client.call("echo", &sent).await.map_err(failed)?;
            expect(back == sent, || format!("call {n} came back another"))
        }
    });
    for done in futures(calls).await {
        done?;
    }
    passed()
}

/// Runs all at the same time.
async fn futures<F>(all: impl Iterator<Item = F>) -> Vec<Result<()>>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let tasks: Vec<_> = all.map(tokio::spawn).collect();
    let mut done = Vec::new();
    for task in tasks {
        let joined = task.await;
        done.push(joined.unwrap_or_else(|error| Err(TestkitError::Talk(error.to_string()))));
    }
    done
}

async fn in_order(realm: &Realm) -> Result<Outcome> {
    let (integrity, privacy) = (RpcQuality::Integrity, RpcQuality::Privacy);
    let server = echoing(realm, &[integrity, privacy]).await?;
    let keytab = realm.keytab("caller2.keytab", &["caller2"])?;
    let of = ("caller2", keytab.as_path());
    let echo = at_localhost("echo");
    let both = client(
        &server.address,
        of,
        &echo,
        &[RpcQuality::Authentication, privacy],
    );
    let _who: Names = both.call("who", &Names::default()).await.map_err(failed)?;
    let weak = client(&server.address, of, &echo, &[RpcQuality::Authentication]);
    let refused: std::result::Result<Names, _> = weak.call("who", &Names::default()).await;
    let told = refused
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    expect(
        told.contains("hadoop.rpc.protection = authentication"),
        || told.clone(),
    )?;
    passed()
}

async fn unexpected(realm: &Realm) -> Result<Outcome> {
    let server = echoing(realm, &[RpcQuality::Privacy]).await?;
    let keytab = realm.keytab("caller3.keytab", &["caller3"])?;
    let of = ("caller3", keytab.as_path());
    let other = client(
        &server.address,
        of,
        &at_localhost("other"),
        &[RpcQuality::Privacy],
    );
    let refused: std::result::Result<Names, _> = other.call("who", &Names::default()).await;
    let told = refused
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    expect(told.contains("the server is echo/localhost, but"), || {
        told.clone()
    })?;
    passed()
}

/// Four hundred clients that begin an exchange with a token that is none, or with a header alone,
/// and go no further; and one after them that is served.
async fn halfway(realm: &Realm) -> Result<Outcome> {
    use tokio::io::AsyncWriteExt as _;
    let server = echoing(realm, &[RpcQuality::Privacy]).await?;
    let mut open = Vec::new();
    let offer = SaslAuth {
        method: "KERBEROS".to_owned(),
        mechanism: "GSSAPI".to_owned(),
        protocol: Some("echo".to_owned()),
        server_id: Some("localhost".to_owned()),
        challenge: None,
    };
    let initiate = encode_sasl_request(&RpcSasl {
        auths: vec![offer],
        ..RpcSasl::step(SaslState::Initiate, &b"no token"[..])
    });
    let header = b"hrpc\x09\x00\xdf".as_slice();
    for n in 0..400 {
        let stream = tokio::net::TcpStream::connect(&server.address).await;
        let mut stream = stream.map_err(|error| TestkitError::Talk(error.to_string()))?;
        let rest = if n % 4 == 0 { &[0, 0] } else { &initiate[..] };
        let _sent = stream.write_all(&[header, rest].concat()).await;
        open.push(stream);
    }
    let keytab = realm.keytab("caller4.keytab", &["caller4"])?;
    let of = ("caller4", keytab.as_path());
    let client = client(
        &server.address,
        of,
        &at_localhost("echo"),
        &[RpcQuality::Privacy],
    );
    let _who: Names = client
        .call("who", &Names::default())
        .await
        .map_err(failed)?;
    passed()
}

/// What a node answers to a caller without Kerberos.
pub fn info_without_proof(ipc: &str) -> Result<String> {
    on_threads(async {
        let client = RpcClient::new(ipc, PROTOCOL, RpcOptions::default());
        let answer: std::result::Result<GetDatanodeInfoResponse, _> = client
            .call("getDatanodeInfo", &GetDatanodeInfoRequest {})
            .await;
        Ok(answer
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default())
    })
}

/// What a node answers to an administrator's command of `name`.
pub fn report_ordered_by(ipc: &str, name: &str, keytab: &Path) -> Result<String> {
    answered(ipc, PROTOCOL, "triggerBlockReport", (name, keytab))
}

/// What a node answers when `name` begins a recovery, as only nodes may.
pub fn recovery_begun_by(ipc: &str, name: &str, keytab: &Path) -> Result<String> {
    let protocol = INTER_DATANODE_PROTOCOL;
    answered(ipc, protocol, "initReplicaRecovery", (name, keytab))
}

/// The refusal of a call whose request is not even looked at.
fn answered(
    ipc: &str,
    protocol: Protocol,
    method: &'static str,
    of: (&str, &Path),
) -> Result<String> {
    on_threads(async {
        let options = proving(of, &at_localhost("dn"), &[RpcQuality::Privacy]);
        let client = RpcClient::new(ipc, protocol, options);
        let answer: std::result::Result<TriggerBlockReportResponse, _> = client
            .call(method, &TriggerBlockReportRequest::default())
            .await;
        Ok(answer
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default())
    })
}
