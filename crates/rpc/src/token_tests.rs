//! Client and server with each other, where the caller holds a token.

use std::sync::Arc;

use bytes::Bytes;
use hayloft_wire::block_token::BlockTokenIdentifier;
use hayloft_wire::frame;
use hayloft_wire::proto::reconfiguration::ListReconfigurablePropertiesResponse as Names;
use hayloft_wire::proto::security::Token;
use hayloft_wire::rpc::names::INVALID_TOKEN;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::server::fault::RpcFault;
use crate::server::{Caller, Limits, RpcCall, RpcTokens, Service, TokenPasswords, serve};
use crate::{CLIENT_DATANODE_PROTOCOL, RpcClient, RpcError, RpcOptions, RpcQuality, TokenProof};

/// Far more than one wrapped message holds.
const LARGE_BYTES: usize = 200 << 10;

/// Knows one token: ann's.
pub(crate) struct OfAnn;

impl TokenPasswords for OfAnn {
    fn password_of(
        &self,
        identifier: &[u8],
    ) -> Result<(BlockTokenIdentifier, Zeroizing<Vec<u8>>), String> {
        if identifier != b"of ann" {
            return Err("no such token".to_owned());
        }
        let token = BlockTokenIdentifier {
            user: Some("ann".to_owned()),
            ..BlockTokenIdentifier::default()
        };
        Ok((token, Zeroizing::new(b"password".to_vec())))
    }
}

/// Gives back what it gets, behind who called.
struct Echo(Arc<[RpcQuality]>);

impl Service for Echo {
    fn tokens(&self) -> Option<RpcTokens> {
        Some(RpcTokens {
            passwords: Arc::new(OfAnn),
            qualities: Arc::clone(&self.0),
        })
    }

    async fn authorize(&self, _caller: &Caller) -> Result<(), String> {
        Ok(())
    }

    async fn call(&self, call: RpcCall) -> Result<Bytes, RpcFault> {
        let sent: Result<Names, _> = frame::decode(call.request);
        let mut name = sent.map_err(|error| RpcFault::io(error.to_string()))?.name;
        name.push(call.caller.user.unwrap_or_default());
        Ok(frame::delimited(&Names { name }))
    }
}

/// A call with this token, where this protects the bytes.
async fn called(
    quality: RpcQuality,
    (identifier, password): (&'static str, &'static str),
    sent: &Names,
) -> Result<Names, RpcError> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let stop = CancellationToken::new();
    let _stops = stop.clone().drop_guard();
    let service = Echo([quality].into());
    tokio::spawn(serve(listener, service, Limits::default(), stop));
    let token = Token {
        identifier: Bytes::from(identifier),
        password: Bytes::from(password),
        ..Token::default()
    };
    let options = RpcOptions {
        token: Some(TokenProof::new(token, [quality].into())),
        user: "bob".to_owned(),
        ..RpcOptions::default()
    };
    let client = RpcClient::new(address, CLIENT_DATANODE_PROTOCOL, options);
    let first = client.call("echo", sent).await?;
    let again = client.call("echo", sent).await?;
    assert_eq!(first, again);
    Ok(first)
}

#[tokio::test]
async fn the_holder_of_a_token_calls_as_its_user() {
    for quality in [
        RpcQuality::Authentication,
        RpcQuality::Integrity,
        RpcQuality::Privacy,
    ] {
        let name = vec!["x".repeat(LARGE_BYTES)];
        let sent = Names { name };
        let back = called(quality, ("of ann", "password"), &sent).await;
        let back = back.expect("believed").name;
        assert!(back.len() == 2 && back.starts_with(&sent.name));
        assert_eq!(back.last().map(String::as_str), Some("ann"), "{quality:?}");
    }
}

#[tokio::test]
async fn a_token_that_is_not_good_is_refused_by_its_class() {
    for (token, class, message) in [
        (
            ("of ann", "another"),
            "javax.security.sasl.SaslException",
            "Mismatched response",
        ),
        (("of bob", "password"), INVALID_TOKEN, "no such token"),
    ] {
        let refused = called(RpcQuality::Privacy, token, &Names::default()).await;
        let Err(RpcError::Remote {
            class: told,
            message: said,
            ..
        }) = refused
        else {
            panic!("{refused:?}");
        };
        assert_eq!(told, class);
        assert!(said.contains(message), "{said}");
    }
}
