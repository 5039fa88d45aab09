//! A session takes whatever bytes come as a frame, in whatever order, and never panics.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::security::RpcQuality;
use crate::server::RpcServerSecurity;
use crate::server::negotiation::{Action, Header, Session};

/// What takes the offer of a server with Kerberos.
fn initiate() -> Bytes {
    let offer = SaslAuth {
        method: "KERBEROS".to_owned(),
        mechanism: "GSSAPI".to_owned(),
        protocol: Some("dn".to_owned()),
        server_id: Some("host".to_owned()),
        challenge: None,
    };
    let message = RpcSasl {
        auths: vec![offer],
        ..RpcSasl::step(SaslState::Initiate, &b"token"[..])
    };
    hayloft_wire::rpc::encode_sasl_request(&message)
}

fn any_frame() -> impl Strategy<Value = Bytes> {
    let sensible = prop_oneof![
        Just(context(Some("a"), None)),
        Just(call(1, "test.Protocol", "echo", b"x")),
        Just(sasl(SaslState::Negotiate, None)),
        Just(sasl(SaslState::Initiate, Some("SIMPLE"))),
        Just(sasl(SaslState::Response, Some("TOKEN"))),
        Just(initiate()),
    ]
    .prop_map(|frame| frame.slice(4..));
    let broken = (sensible.clone(), any::<prop::sample::Index>(), any::<u8>()).prop_map(
        |(frame, at, byte)| {
            let mut bytes = frame.to_vec();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            Bytes::from(bytes)
        },
    );
    let noise = prop::collection::vec(any::<u8>(), 0..64).prop_map(Bytes::from);
    prop_oneof![sensible, broken, noise]
}

proptest! {
    #[test]
    fn sessions_survive(
        with_sasl: bool,
        secure: bool,
        frames in prop::collection::vec(any_frame(), 0..8),
    ) {
        let address = ([127, 0, 0, 1], 1).into();
        let security = secure.then(|| {
            Arc::new(RpcServerSecurity {
                principal: "dn/host@REALM".to_owned(),
                keytab: "/no/such/keytab".into(),
                qualities: [RpcQuality::Privacy].into(),
            })
        });
        let mut session = Session::new(address, with_sasl, security, None);
        let mut authorized = false;
        for frame in frames {
            match session.on_frame(frame) {
                Action::Authorize(caller) => {
                    prop_assert!(!authorized && !secure);
                    authorized = true;
                    session.admit(caller);
                }
                Action::Call(..) => prop_assert!(authorized),
                Action::Exchange { .. } => prop_assert!(secure),
                Action::Believe(..) => prop_assert!(false, "there are no tokens"),
                Action::Nothing | Action::Reply(_) => {}
                Action::Close(_, fault) => {
                    prop_assert!(fault.is_fatal());
                    break;
                }
            }
        }
    }

    #[test]
    fn headers_survive(bytes: [u8; 7]) {
        let header = Header::parse(&bytes);
        if !bytes.starts_with(b"hrpc") {
            prop_assert!(!matches!(header, Header::Rpc { .. }), "{header:?}");
        }
        let _last_words = header.refusal();
    }
}
