//! The SASL exchange at the begin of a connection with Kerberos.
//!
//! ```text
//! client  connection header (0xDF), NEGOTIATE
//! server  NEGOTIATE with what it offers
//! client  INITIATE, the offer chosen and the first token of Kerberos
//! server  CHALLENGE     client  RESPONSE     until both are sure of each other
//! server  CHALLENGE with layers, wrapped     client  RESPONSE with its choice, wrapped
//! server  SUCCESS
//! ```

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hayloft_gss::GssContext;
use hayloft_wire::rpc::{RpcSasl, SaslAuth, SaslState};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::RpcError;
use super::connection_tasks::Shared;
use super::sasl_messages::{
    initiate, negotiate, offered_methods, receive, refused, refused_with, send,
};
use crate::security::{
    BlockedCall, LayerOffer, OffThreads, RpcQuality, RpcSecurity, Wrapping, off_threads,
};

/// How long one step may take; the first asks the KDC for a ticket.
const STEP_LIMIT: Duration = Duration::from_secs(60);
/// Messages of the server, at most: Kerberos needs four.
const MESSAGES_MAX: usize = 10;
/// Largest message of an exchange, bytes: tickets may carry groups of a directory.
const MESSAGE_BYTES_MAX: usize = 256 << 10;
/// What we say of the largest wrapped message that we take.
const OUR_MAX: u32 = 65_536;

/// What the exchange ended in.
pub(super) struct Authenticated {
    /// Our full principal.
    pub(super) principal: String,
    /// What wraps the frames from now on, if anything does.
    pub(super) wrapping: Option<Arc<Wrapping>>,
}

/// Where the exchange is.
enum Stage<C = GssContext> {
    /// Tokens of Kerberos go to and fro.
    Tokens(C),
    /// The server has to say its layers.
    Layers(C),
    /// The server has to agree.
    End(Option<Arc<Wrapping>>),
}

/// What a message of the server calls for.
enum Due<C> {
    /// It is a token of Kerberos.
    Step(C),
    /// It says the server's layers.
    Choice(C),
    /// The server agrees: both sides are sure of each other.
    Proven(Option<Arc<Wrapping>>),
}

impl<C> Stage<C> {
    /// What a message of this state calls for here. A server that says success before the end has
    /// proved nothing.
    fn due(self, state: i32) -> Result<Due<C>, String> {
        match (SaslState::try_from(state), self) {
            (Ok(SaslState::Success), Self::End(wrapping)) => Ok(Due::Proven(wrapping)),
            (Ok(SaslState::Challenge), Self::Tokens(context)) => Ok(Due::Step(context)),
            (Ok(SaslState::Challenge), Self::Layers(context)) => Ok(Due::Choice(context)),
            (state, _) => Err(format!(
                "it broke the exchange off with {state:?} before it was complete"
            )),
        }
    }
}

/// Proves to the server who we are, and has it prove who it is.
pub(super) async fn authenticate(
    stream: &mut TcpStream,
    shared: &Shared,
    security: &RpcSecurity,
) -> Result<Authenticated, RpcError> {
    // Without a ticket the server is not bothered.
    let credentials = security.login.credentials().await;
    let credentials = credentials.map_err(|error| refused(shared, error))?;
    let principal = credentials.principal().to_owned();
    let realm = principal
        .rsplit_once('@')
        .map_or("", |(_, realm)| realm)
        .to_owned();
    let (auth, target) = met(stream, shared, security, &realm).await?;
    let (context, token, complete) = step(shared, security, Vec::new(), move || {
        GssContext::to(credentials, &target)
    })
    .await?;
    initiate(stream, shared, auth, token).await?;
    let mut stage = if complete {
        Stage::Layers(context)
    } else {
        Stage::Tokens(context)
    };
    for _ in 0..MESSAGES_MAX {
        let message = next(stream, shared, security).await?;
        let token = message.token.unwrap_or_default();
        let due = stage
            .due(message.state)
            .map_err(|why| refused(shared, why))?;
        let (next, answer) = match due {
            Due::Proven(wrapping) => {
                return Ok(Authenticated {
                    principal,
                    wrapping,
                });
            }
            Due::Step(context) => {
                let (context, token, complete) =
                    step(shared, security, token.to_vec(), move || Ok(context)).await?;
                let next = if complete {
                    Stage::Layers(context)
                } else {
                    Stage::Tokens(context)
                };
                (next, token)
            }
            Due::Choice(context) => {
                let chosen = choose(shared, security, context, token).await?;
                (Stage::End(chosen.0), chosen.1)
            }
        };
        stage = next;
        let answer = RpcSasl::step(SaslState::Response, answer);
        send(stream, shared, &answer).await?;
    }
    Err(refused(
        shared,
        format!("no end of the exchange after {MESSAGES_MAX} messages"),
    ))
}

/// Asks the server what it offers, and takes Kerberos of the server that is expected: the offer,
/// and whose ticket is asked for. Until then the server hears nothing of who we are.
async fn met(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    shared: &Shared,
    security: &RpcSecurity,
    realm: &str,
) -> Result<(SaslAuth, String), RpcError> {
    negotiate(stream, shared).await?;
    let auth = offered(shared, &next(stream, shared, security).await?)?;
    let target = target(shared, security, &auth, realm).await?;
    Ok((auth, target))
}

/// One step of the context that `make` gives, off the async threads. Where it fails the ticket may
/// be the reason: the library does not use one of another time than this host's clock says now.
async fn step(
    shared: &Shared,
    security: &RpcSecurity,
    input: Vec<u8>,
    make: impl FnOnce() -> Result<GssContext, hayloft_gss::GssError> + Send + 'static,
) -> Result<(GssContext, Vec<u8>, bool), RpcError> {
    let stepped = off_threads(OffThreads::Ticket, STEP_LIMIT, move || {
        let mut context = make()?;
        let step = context.step(&input)?;
        Ok((context, step.token, step.complete))
    });
    stepped.await.map_err(|error| {
        security.login.doubt();
        refused(shared, error)
    })
}

/// Takes one of the server's layers; what wraps from now on, and the answer.
async fn choose(
    shared: &Shared,
    security: &RpcSecurity,
    mut context: GssContext,
    token: Bytes,
) -> Result<(Option<Arc<Wrapping>>, Vec<u8>), RpcError> {
    let failed = |error| refused(shared, BlockedCall::Failed(error));
    let (plain, _) = context.unwrap(&token).map_err(failed)?;
    let Some((offer, [])) = LayerOffer::decode(&plain) else {
        return Err(shared.malformed("the layers that it offers are not four bytes"));
    };
    let Some(quality) = offer.choose(&security.qualities) else {
        let wanted: Vec<_> = security
            .qualities
            .iter()
            .map(|quality| quality.name())
            .collect();
        return Err(refused(
            shared,
            format!(
                "it offers none of hadoop.rpc.protection = {}: set the same on both sides",
                wanted.join(",")
            ),
        ));
    };
    let size = if quality == RpcQuality::Authentication {
        0
    } else {
        OUR_MAX
    };
    let choice = LayerOffer {
        bits: quality.bit(),
        size,
    };
    let answer = context.wrap(&choice.encode(), false).map_err(failed)?;
    let wrapping = Wrapping::new(context, quality, offer.size).map_err(failed)?;
    Ok((wrapping, answer))
}

/// The server's offer of Kerberos.
fn offered(shared: &Shared, message: &RpcSasl) -> Result<SaslAuth, RpcError> {
    let offers = &message.auths;
    let is_kerberos = |auth: &&SaslAuth| auth.method == "KERBEROS" && auth.mechanism == "GSSAPI";
    if let Some(auth) = offers.iter().find(is_kerberos) {
        let mut auth = auth.clone();
        auth.challenge = None;
        return Ok(auth);
    }
    let offers = offered_methods(offers);
    Err(refused(
        shared,
        format!(
            "it offers no Kerberos but {offers}, and a server that proves nothing is not trusted: \
             set hadoop.security.authentication to kerberos there"
        ),
    ))
}

/// Whose ticket is asked for.
async fn target(
    shared: &Shared,
    security: &RpcSecurity,
    auth: &SaslAuth,
    realm: &str,
) -> Result<String, RpcError> {
    let says = (auth.protocol(), auth.server_id());
    let address: IpAddr = shared.peer.ip().to_canonical();
    let checked = security.server.check(says, address, realm).await;
    checked.map_err(|why| refused(shared, why))
}

/// The next message of the exchange. Until its end the server has proved nothing: what it refuses
/// with is a reason for the log, and no exception of a NameNode.
async fn next(
    stream: &mut (impl AsyncRead + Unpin),
    shared: &Shared,
    security: &RpcSecurity,
) -> Result<RpcSasl, RpcError> {
    let message = receive(stream, shared, MESSAGE_BYTES_MAX, |error| {
        security.login.doubt();
        refused_with(shared, &error)
    });
    message.await
}

#[cfg(test)]
mod tests {
    use hayloft_wire::rpc::{self as wire, CALL_SASL, CLIENT_ID_BYTES};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::client::tests::{refusal, shared};
    use crate::{KerberosLogin, LoginSource, ServerPrincipal};

    fn security() -> RpcSecurity {
        RpcSecurity {
            login: KerberosLogin::from(LoginSource::Keytab {
                principal: "someone@NOWHERE".to_owned(),
                path: "/no/such/keytab".into(),
            }),
            server: ServerPrincipal {
                key: "dfs.namenode.kerberos.principal",
                principal: Some("nn/host@NOWHERE".to_owned()),
                pattern: None,
            },
            qualities: [RpcQuality::Privacy].into(),
        }
    }

    /// What comes of a server that answers the first message with `answer`. It hears that one
    /// alone, which says nothing of its sender.
    async fn meets(answer: &[u8]) -> Result<(SaslAuth, String), RpcError> {
        let (mut ours, mut theirs) = tokio::io::duplex(1 << 16);
        theirs.write_all(answer).await.expect("it is read");
        let shared = shared(([127, 0, 0, 1], 1).into());
        let met = met(&mut ours, &shared, &security(), "NOWHERE").await;
        drop(ours);
        let mut heard = Vec::new();
        theirs.read_to_end(&mut heard).await.expect("an end");
        let mut asked = b"hrpc\x09\x00\xdf".to_vec();
        asked.extend_from_slice(&wire::encode_sasl_request(&RpcSasl {
            state: SaslState::Negotiate.into(),
            ..RpcSasl::default()
        }));
        assert_eq!(heard, asked);
        met
    }

    fn offer(each: &[[&str; 3]]) -> Bytes {
        let auth = |[method, mechanism, protocol]: &[&str; 3]| SaslAuth {
            method: (*method).to_owned(),
            mechanism: (*mechanism).to_owned(),
            protocol: Some((*protocol).to_owned()),
            server_id: Some("host".to_owned()),
            challenge: None,
        };
        wire::encode_sasl_response(&RpcSasl::offer(each.iter().map(auth).collect()))
    }

    #[tokio::test]
    async fn a_server_that_cannot_prove_who_it_is_hears_nothing_of_the_caller() {
        let simple = ["SIMPLE", "", ""];
        let token = ["TOKEN", "DIGEST-MD5", ""];
        for (answer, told) in [
            (offer(&[simple]), "no Kerberos but SIMPLE"),
            (offer(&[token, simple]), "no Kerberos but TOKEN, SIMPLE"),
            (offer(&[["KERBEROS", "PLAIN", "nn"]]), "offers no Kerberos"),
            (offer(&[]), "no Kerberos but nothing"),
            // What a server without security says: to go on without a proof.
            (
                wire::encode_sasl_response(&RpcSasl::simple_only()),
                "no Kerberos but nothing",
            ),
            // Another server, which may well have a key of its own.
            (
                offer(&[["KERBEROS", "GSSAPI", "evil"]]),
                "the server is evil/host, but dfs.namenode.kerberos.principal",
            ),
        ] {
            let Err(RpcError::Unproven { reason, .. }) = meets(&answer).await else {
                panic!("{told}: it is believed");
            };
            assert!(reason.contains(told), "{reason}");
        }
        let met = meets(&offer(&[simple, ["KERBEROS", "GSSAPI", "nn"]])).await;
        let (_, target) = met.expect("the expected server");
        assert_eq!(target, "nn/host@NOWHERE");
    }

    #[tokio::test]
    async fn a_server_without_sasl_hears_nothing_of_the_caller() {
        let call = wire::call_header(0, [7; CLIENT_ID_BYTES], 0);
        for answer in [
            wire::encode_success(&call, &RpcSasl::simple_only()),
            Bytes::from_static(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        ] {
            let met = meets(&answer).await;
            assert!(matches!(met, Err(RpcError::Malformed { .. })), "{met:?}");
        }
    }

    #[test]
    fn success_counts_at_the_end_alone() {
        let success = i32::from(SaslState::Success);
        for early in [Stage::Tokens(()), Stage::Layers(())] {
            let told = early.due(success).err().expect("nothing is proved");
            assert!(told.contains("before it was complete"), "{told}");
        }
        let end = || Stage::<()>::End(None);
        assert!(matches!(end().due(success), Ok(Due::Proven(None))));
        let challenge = i32::from(SaslState::Challenge);
        for state in (-1..20).filter(|state| *state != success) {
            assert!(end().due(state).is_err(), "{state}");
            for goes_on in [Stage::Tokens(()), Stage::Layers(())] {
                assert_eq!(goes_on.due(state).is_ok(), state == challenge, "{state}");
            }
        }
    }

    #[tokio::test]
    async fn a_server_that_proved_nothing_speaks_for_no_namenode() {
        let class = "org.example.AuthorizationException";
        let words = refusal(CALL_SASL, class, "go away\nat some place");
        let got = meets(&words).await;
        let Err(RpcError::Unproven { reason, .. }) = got else {
            panic!("{got:?}");
        };
        assert_eq!(reason, format!("it refuses with {class}: go away"));
        let words = refusal(CALL_SASL, class, "GSS initiate failed");
        let got = meets(&words).await;
        let told = got.expect_err("a refusal").to_string();
        assert!(told.contains("correct the clocks"), "{told}");
    }
}
