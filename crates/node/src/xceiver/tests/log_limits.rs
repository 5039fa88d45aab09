//! How many lines of the log failed operations make.

use hayloft_wire::transfer::Op;
use tracing::Level;

use super::super::XferError;
use super::super::server::report;
use super::node::Node;
use super::pool;
use crate::logged_tests::Logged;
use crate::security::TokenRefused;

/// Lines of operations that fail a thousand times with each of these.
fn lines_of(logged: &Logged, node: &Node, errors: &[XferError]) -> usize {
    let before = logged.that_say("");
    for _ in 0..1000 {
        for error in errors {
            report(&node.x, Op::WriteBlock, "10.0.0.1:50000", error);
        }
    }
    logged.that_say("") - before
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_fill_no_log_and_those_of_strangers_hide_no_other() {
    let node = Node::start().await;
    let logged = Logged::of(Level::INFO);
    let _guard = tracing::subscriber::set_default(logged.clone());
    let lines_of = |errors: &[XferError]| lines_of(&logged, &node, errors);
    let of_strangers = [
        XferError::NotReady(pool().to_string()),
        XferError::Token(TokenRefused::UnknownKey(7)),
        XferError::Token(TokenRefused::Password),
        XferError::protocol("10.0.0.1:50000", "it makes no sense"),
    ];
    let gone = [
        XferError::Socket {
            peer: "10.0.0.1:50000".to_owned(),
            source: std::io::ErrorKind::ConnectionReset.into(),
        },
        XferError::Stopped("shut down"),
    ];
    assert_eq!(lines_of(&gone), 10);
    assert_eq!(
        lines_of(&of_strangers),
        10,
        "readers that had enough hide none"
    );
    let refused = [XferError::Refused("no such replica".to_owned())];
    assert_eq!(lines_of(&refused), 10, "said, and not for ever");
    assert_eq!(lines_of(&of_strangers), 0);
}
