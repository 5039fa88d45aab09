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
enum Stage {
    /// Tokens of Kerberos go to and fro.
    Tokens(GssContext),
    /// The server has to say its layers.
    Layers(GssContext),
    /// The server has to agree.
    End(Option<Arc<Wrapping>>),
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
    negotiate(stream, shared).await?;
    let auth = offered(shared, &next(stream, shared, security).await?)?;
    let target = target(shared, security, &auth, &realm).await?;
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
        let (next, answer) = match (SaslState::try_from(message.state), stage) {
            (Ok(SaslState::Success), Stage::End(wrapping)) => {
                return Ok(Authenticated {
                    principal,
                    wrapping,
                });
            }
            (Ok(SaslState::Challenge), Stage::Tokens(context)) => {
                let (context, token, complete) =
                    step(shared, security, token.to_vec(), move || Ok(context)).await?;
                let next = if complete {
                    Stage::Layers(context)
                } else {
                    Stage::Tokens(context)
                };
                (next, token)
            }
            (Ok(SaslState::Challenge), Stage::Layers(context)) => {
                let chosen = choose(shared, security, context, token).await?;
                (Stage::End(chosen.0), chosen.1)
            }
            (state, _) => {
                return Err(refused(
                    shared,
                    format!("it broke the exchange off with {state:?} before it was complete"),
                ));
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
    stream: &mut TcpStream,
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
    use hayloft_wire::rpc::CALL_SASL;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;
    use crate::client::tests::{refusal, shared};
    use crate::{KerberosLogin, LoginSource, ServerPrincipal};

    #[tokio::test]
    async fn a_server_that_proved_nothing_speaks_for_no_namenode() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let mut stream = TcpStream::connect(address).await.expect("listening");
        let (mut server, _) = listener.accept().await.expect("a client");
        let security = RpcSecurity {
            login: KerberosLogin::from(LoginSource::Keytab {
                principal: "someone@NOWHERE".to_owned(),
                path: "/no/such/keytab".into(),
            }),
            server: ServerPrincipal::default(),
            qualities: [RpcQuality::Privacy].into(),
        };
        let class = "org.example.AuthorizationException";
        let words = refusal(CALL_SASL, class, "go away\nat some place");
        server.write_all(&words).await.expect("it is read");
        let got = next(&mut stream, &shared(address), &security).await;
        let Err(RpcError::Unproven { reason, .. }) = got else {
            panic!("{got:?}");
        };
        assert_eq!(reason, format!("it refuses with {class}: go away"));
        let words = refusal(CALL_SASL, class, "GSS initiate failed");
        server.write_all(&words).await.expect("it is read");
        let got = next(&mut stream, &shared(address), &security).await;
        let told = got.expect_err("a refusal").to_string();
        assert!(told.contains("correct the clocks"), "{told}");
    }
}
