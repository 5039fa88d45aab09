//! What a session with Kerberos says before anything is proved: no library and no KDC are needed.

use std::sync::Arc;

use super::*;
use crate::security::RpcQuality;
use crate::server::RpcServerSecurity;
use crate::server::exchange::Proven;
use crate::server::negotiation::{Action, Session};

/// A session whose callers have to prove who they are; `announced`: it began with SASL.
fn session(announced: bool) -> Session {
    let security = RpcServerSecurity {
        principal: "dn/host.example@REALM".to_owned(),
        keytab: "/no/such/keytab".into(),
        qualities: [RpcQuality::Privacy].into(),
    };
    let address = ([127, 0, 0, 1], 1).into();
    Session::new(address, announced, Some(Arc::new(security)), None)
}

fn frame(bytes: Bytes) -> Bytes {
    bytes.slice(4..)
}

fn initiate(auths: Vec<SaslAuth>) -> Bytes {
    let message = RpcSasl {
        auths,
        ..RpcSasl::step(SaslState::Initiate, &b"token"[..])
    };
    frame(hayloft_wire::rpc::encode_sasl_request(&message))
}

fn offers(session: &mut Session) -> Vec<SaslAuth> {
    let Action::Reply(bytes) = session.on_frame(frame(sasl(SaslState::Negotiate, None))) else {
        panic!("an offer is expected");
    };
    let response = hayloft_wire::rpc::parse_response(frame(bytes)).expect("a frame");
    let body = response.outcome.expect("no refusal");
    hayloft_wire::frame::decode::<RpcSasl>(body)
        .expect("a message")
        .auths
}

fn proven() -> Proven {
    Proven {
        token: None,
        principal: "gate@REALM".to_owned(),
        wrapping: None,
    }
}

#[test]
fn the_context_comes_after_the_proof_and_once() {
    let mut session = session(true);
    session.prove(proven());
    let early = session.on_frame(frame(call(1, "test.Protocol", "echo", b"x")));
    assert!(refusal(early).contains("context not established"));
    let again = session.on_frame(frame(sasl(SaslState::Negotiate, None)));
    assert!(refusal(again).contains("not requested by client"));
    let Action::Authorize(caller) = session.on_frame(frame(context(None, None))) else {
        panic!("a context is expected");
    };
    session.admit(caller);
    let second = session.on_frame(frame(context(Some("hdfs"), None)));
    assert!(refusal(second).contains("already processed"));
}

#[test]
fn who_proved_to_be_someone_acts_for_another_in_its_own_name() {
    for (effective, real, user, real_user) in [
        (None, None, "gate@REALM", None),
        (Some("gate@REALM"), None, "gate@REALM", None),
        (Some("ann"), None, "ann", Some("gate@REALM")),
        // The client says who it really is, and is not believed.
        (Some("ann"), Some("hdfs"), "ann", Some("gate@REALM")),
        (None, Some("hdfs"), "gate@REALM", None),
    ] {
        let mut session = session(true);
        session.prove(proven());
        let Action::Authorize(caller) = session.on_frame(frame(context(effective, real))) else {
            panic!("a context is expected");
        };
        let named = (caller.user.as_deref(), caller.real_user.as_deref());
        assert_eq!(named, (Some(user), real_user), "{effective:?} {real:?}");
    }
}

fn refusal(action: Action) -> String {
    match action {
        Action::Close(_, fault) => fault.to_string(),
        other => panic!("a refusal is expected: {other:?}"),
    }
}

#[test]
fn kerberos_is_offered_and_has_to_be_taken_as_it_is() {
    let mut session = session(true);
    let offers = offers(&mut session);
    let [offer] = offers.as_slice() else {
        panic!("{offers:?}");
    };
    assert_eq!(
        (offer.method.as_str(), offer.mechanism.as_str()),
        ("KERBEROS", "GSSAPI")
    );
    assert_eq!(
        (offer.protocol(), offer.server_id()),
        ("dn", "host.example")
    );
    let altered = SaslAuth {
        server_id: Some("other".to_owned()),
        ..offer.clone()
    };
    let told = refusal(session.on_frame(initiate(vec![altered])));
    assert!(told.contains("KERBEROS authentication is not enabled.  Available:[KERBEROS]"));
    let exchange = session.on_frame(initiate(vec![offer.clone()]));
    let begun = matches!(exchange, Action::Exchange { anew: true, .. });
    assert!(begun, "{exchange:?}");
    let again = session.on_frame(initiate(vec![offer.clone()]));
    assert!(refusal(again).contains("begun an exchange already"));
}

#[test]
fn who_proves_nothing_is_refused() {
    let (_, fault) = session(false).unproven().expect("a refusal");
    let told = "org.apache.hadoop.security.AccessControlException: SIMPLE authentication is not \
                enabled.  Available:[KERBEROS]";
    assert_eq!(fault.to_string(), told);
    assert_eq!(
        refusal(session(false).on_frame(frame(context(Some("hdfs"), None)))),
        told
    );
    let early = session(true).on_frame(frame(context(Some("hdfs"), None)));
    assert!(refusal(early).contains("during SASL negotiation"));
    let call = session(true).on_frame(frame(call(1, "test.Protocol", "echo", b"x")));
    assert!(refusal(call).contains("context not established"));
    let mut guessing = session(true);
    assert!(matches!(
        guessing.on_frame(frame(sasl(SaslState::Initiate, Some("SIMPLE")))),
        Action::Reply(_)
    ));
    let again = guessing.on_frame(frame(sasl(SaslState::Initiate, Some("SIMPLE"))));
    assert_eq!(refusal(again), told);
}
