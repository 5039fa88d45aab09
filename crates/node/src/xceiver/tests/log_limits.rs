//! How many lines of the log failed operations make.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hayloft_wire::transfer::Op;
use tracing::{Event, Level, Metadata, Subscriber, span};

use super::super::XferError;
use super::super::server::report;
use super::node::Node;
use super::pool;
use crate::security::TokenRefused;

/// Counts the lines of the thread that a log of the level INFO has.
#[derive(Clone, Default)]
struct Lines(Arc<AtomicUsize>);

impl Lines {
    /// Lines of operations that fail a thousand times with each of these.
    fn of(&self, node: &Node, errors: &[XferError]) -> usize {
        let before = self.0.load(Ordering::Relaxed);
        for _ in 0..1000 {
            for error in errors {
                report(&node.x, Op::WriteBlock, "10.0.0.1:50000", error);
            }
        }
        self.0.load(Ordering::Relaxed) - before
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_fill_no_log_and_those_of_strangers_hide_no_other() {
    let node = Node::start().await;
    let lines = Lines::default();
    let _guard = tracing::subscriber::set_default(lines.clone());
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
    assert_eq!(lines.of(&node, &gone), 10);
    assert_eq!(
        lines.of(&node, &of_strangers),
        10,
        "readers that had enough hide none"
    );
    let refused = [XferError::Refused("no such replica".to_owned())];
    assert_eq!(lines.of(&node, &refused), 10, "said, and not for ever");
    assert_eq!(lines.of(&node, &of_strangers), 0);
}
