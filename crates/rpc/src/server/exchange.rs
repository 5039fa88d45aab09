//! The server's side of a SASL exchange with Kerberos.
//!
//! After the tokens of Kerberos come the layers (RFC 4752): ours wrapped, the caller's choice
//! wrapped. Callers with block tokens have an exchange of their own.

use std::sync::Arc;
use std::time::Duration;

use hayloft_gss::{GssContext, GssCredentials, GssError};
use hayloft_wire::block_token::BlockTokenIdentifier;
use hayloft_wire::rpc::{RpcErrorCode, SaslAuth, SaslState};

use super::fault::{RpcFault, java};
use crate::security::{BlockedCall, LayerOffer, OffThreads, RpcQuality, Wrapping, off_threads};

/// How long one step may take: it reads the keytab.
const STEP_LIMIT: Duration = Duration::from_secs(20);
/// Steps of one exchange, at most: a caller needs three.
const STEPS_MAX: usize = 8;
/// Largest token of a caller, bytes: tickets may carry groups of a directory.
const TOKEN_BYTES_MAX: usize = 256 << 10;

/// With what callers are authenticated.
#[derive(Clone, Debug)]
pub struct RpcServerSecurity {
    /// Our principal: service, host and realm.
    pub principal: String,
    /// The keytab with its key, read again for each caller.
    pub keytab: std::path::PathBuf,
    /// What may protect the bytes (`hadoop.rpc.protection`); not empty.
    pub qualities: Arc<[RpcQuality]>,
}

impl RpcServerSecurity {
    /// What a caller is offered.
    pub(super) fn offers(&self) -> Vec<SaslAuth> {
        let name = self.principal.split('@').next().unwrap_or_default();
        let (service, host) = name.split_once('/').unwrap_or((name, ""));
        vec![SaslAuth {
            method: Mechanism::Kerberos.method().to_owned(),
            mechanism: "GSSAPI".to_owned(),
            protocol: Some(service.to_owned()),
            server_id: Some(host.to_owned()),
            challenge: None,
        }]
    }

    /// What is on offer, as refusals say it.
    pub(super) fn available(&self) -> String {
        format!("[{}]", Mechanism::Kerberos.method())
    }
}

/// A way to prove who one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mechanism {
    /// A ticket of Kerberos, by GSSAPI.
    Kerberos,
}

impl Mechanism {
    const fn method(self) -> &'static str {
        match self {
            Self::Kerberos => "KERBEROS",
        }
    }
}

/// Who proved to be who, and what wraps the frames from now on.
#[derive(Clone)]
pub(super) struct Proven {
    pub(super) principal: String,
    /// By which it was proved; `None`: by a ticket.
    pub(super) token: Option<Arc<BlockTokenIdentifier>>,
    pub(super) wrapping: Option<Arc<Wrapping>>,
}

impl std::fmt::Debug for Proven {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proven({})", self.principal)
    }
}

/// Why a caller is not believed: it hears the fault, and the log has the reason.
#[derive(Debug)]
pub(super) struct NotBelieved {
    pub(super) fault: RpcFault,
    pub(super) reason: String,
}

/// What a step gave.
#[derive(Debug)]
pub(super) struct Stepped {
    /// What the caller gets.
    pub(super) state: SaslState,
    pub(super) token: Option<Vec<u8>>,
    /// Set with the last step.
    pub(super) proven: Option<Proven>,
}

/// Where an exchange is.
enum Stage {
    /// Nothing has come.
    Begun,
    /// Tokens of Kerberos go to and fro.
    Tokens(GssContext),
    /// The caller has our last token, and says nothing more.
    Last(GssContext),
    /// The caller has to choose a layer.
    Choice(GssContext),
    /// It is over.
    Over,
}

/// One exchange.
pub(super) struct Exchange {
    security: Arc<RpcServerSecurity>,
    stage: Stage,
    steps: usize,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Exchange({} steps)", self.steps)
    }
}

impl Exchange {
    pub(super) fn new(security: Arc<RpcServerSecurity>) -> Self {
        Self {
            security,
            stage: Stage::Begun,
            steps: 0,
        }
    }

    /// Takes in a caller's token.
    pub(super) async fn step(&mut self, token: &[u8]) -> Result<Stepped, NotBelieved> {
        self.steps += 1;
        if self.steps > STEPS_MAX || token.len() > TOKEN_BYTES_MAX {
            return Err(refused("the exchange is too long"));
        }
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Begun => {
                let context = accepting(Arc::clone(&self.security)).await;
                // The caller is no one yet: it learns no names of files.
                let context = context.map_err(|error| because("GSS initiate failed", error))?;
                self.tokens(context, token).await
            }
            Stage::Tokens(context) => self.tokens(context, token).await,
            Stage::Last(context) => self.offer(context),
            Stage::Choice(context) => self.choice(context, token),
            Stage::Over => Err(refused("the exchange is over")),
        }
    }

    async fn tokens(
        &mut self,
        mut context: GssContext,
        token: &[u8],
    ) -> Result<Stepped, NotBelieved> {
        let token = token.to_vec();
        let accepted = off_threads(OffThreads::Caller, STEP_LIMIT, move || {
            let step = context.step(&token)?;
            Ok((context, step))
        });
        let accepted = accepted.await;
        let (context, step) = accepted.map_err(|error| because("GSS initiate failed", error))?;
        if step.complete && step.token.is_empty() {
            return self.offer(context);
        }
        self.stage = if step.complete {
            Stage::Last(context)
        } else {
            Stage::Tokens(context)
        };
        Ok(challenge(step.token))
    }

    /// Says which layers there are.
    fn offer(&mut self, mut context: GssContext) -> Result<Stepped, NotBelieved> {
        let offer = LayerOffer::of(&self.security.qualities).encode();
        let wrapped = context.wrap(&offer, false).map_err(no_layer)?;
        self.stage = Stage::Choice(context);
        Ok(challenge(wrapped))
    }

    /// Takes the caller's choice.
    fn choice(&mut self, mut context: GssContext, token: &[u8]) -> Result<Stepped, NotBelieved> {
        let (plain, _) = context.unwrap(token).map_err(no_layer)?;
        let (choice, acts_as) =
            LayerOffer::decode(&plain).ok_or_else(|| refused("no layer was chosen"))?;
        let chosen = self
            .security
            .qualities
            .iter()
            .find(|q| q.bit() == choice.bits);
        let quality = *chosen.ok_or_else(|| refused("a layer was chosen that is not on offer"))?;
        let principal = context
            .caller()
            .ok_or_else(|| refused("the caller has no name"))?;
        if !acts_as.is_empty() && acts_as != principal.as_bytes() {
            return Err(refused("the caller wants to act as someone else"));
        }
        let wrapping = Wrapping::new(context, quality, choice.size);
        let wrapping = wrapping.map_err(no_layer)?;
        let proven = Proven {
            principal,
            token: None,
            wrapping,
        };
        Ok(Stepped {
            state: SaslState::Success,
            token: None,
            proven: Some(proven),
        })
    }
}

/// A context that waits for a caller.
async fn accepting(security: Arc<RpcServerSecurity>) -> Result<GssContext, BlockedCall> {
    off_threads(OffThreads::Caller, STEP_LIMIT, move || {
        let credentials = GssCredentials::accepting(&security.principal, &security.keytab)?;
        GssContext::from_caller(Arc::new(credentials))
    })
    .await
}

fn challenge(token: Vec<u8>) -> Stepped {
    Stepped {
        state: SaslState::Challenge,
        token: Some(token),
        proven: None,
    }
}

fn no_layer(error: GssError) -> NotBelieved {
    because("Problem with the negotiation of layers", error)
}

fn refused(why: &str) -> NotBelieved {
    because(why, why)
}

fn because(told: &str, reason: impl ToString) -> NotBelieved {
    NotBelieved {
        fault: RpcFault::fatal(RpcErrorCode::FatalUnauthorized, java::SASL, told),
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_log_says_why_a_caller_is_not_believed_and_the_caller_does_not_hear_it() {
        let security = RpcServerSecurity {
            principal: "dn/host.example@REALM".to_owned(),
            keytab: "/no/such/keytab".into(),
            qualities: [RpcQuality::Privacy].into(),
        };
        let mut exchange = Exchange::new(Arc::new(security));
        let refused = exchange.step(b"token").await.expect_err("no keytab");
        assert_eq!(refused.fault.message, "GSS initiate failed");
        // On a host without Kerberos, that it has none.
        let known = ["/no/such/keytab", "libgssapi"];
        assert!(
            known.iter().any(|what| refused.reason.contains(what)),
            "{refused:?}"
        );
        let over = exchange.step(b"token").await.expect_err("it is over");
        assert_eq!(over.reason, "the exchange is over");
    }
}
