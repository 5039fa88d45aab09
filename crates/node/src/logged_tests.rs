//! What a test makes the log say.

use std::sync::{Arc, Mutex};

use hayloft_io::locks::lock;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// Collects the lines of the thread, which all tasks of a test share; clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    least: Level,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Logged {
    /// Of this level, and of worse.
    pub(crate) fn of(least: Level) -> Self {
        let lines = Arc::default();
        Self { least, lines }
    }

    /// Warnings and errors.
    pub(crate) fn warnings() -> Self {
        Self::of(Level::WARN)
    }

    /// How many lines say that so far.
    pub(crate) fn that_say(&self, what: &str) -> usize {
        let lines = lock(&self.lines);
        lines.iter().filter(|line| line.contains(what)).count()
    }
}

impl Visit for Logged {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            lock(&self.lines).push(format!("{value:?}"));
        }
    }
}

impl Subscriber for Logged {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.least
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
