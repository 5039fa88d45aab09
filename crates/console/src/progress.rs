//! What is shown while something takes time: a bar or spinner on a terminal, lines elsewhere.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// One step that may take more than a second. Everything goes to stderr.
pub struct ProgressStep {
    what: String,
    bar: ProgressBar,
    start: Instant,
    /// Nothing is said of it before it has lasted this long.
    hidden_for: Option<Duration>,
}

/// Steps that are usually short are mentioned once they last longer.
const SHORT: Duration = Duration::from_secs(1);

impl ProgressStep {
    /// Begins a step of unknown length.
    pub fn spinner(what: impl Into<String>) -> Self {
        Self::begin(what.into(), None)
    }

    /// Begins a step over so many bytes.
    pub fn bytes(what: impl Into<String>, total: u64) -> Self {
        Self::begin(what.into(), Some(total))
    }

    /// Begins a step that is usually over at once: it is mentioned when it lasts for a second, for
    /// which [`ProgressStep::tick`] has to be called now and then.
    pub fn short(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            bar: ProgressBar::hidden(),
            start: Instant::now(),
            hidden_for: Some(SHORT),
        }
    }

    /// Shows a short step that has become long.
    pub fn tick(&mut self) {
        if self
            .hidden_for
            .is_some_and(|limit| self.start.elapsed() >= limit)
        {
            let start = self.start;
            *self = Self::begin(std::mem::take(&mut self.what), None);
            self.start = start;
        }
    }

    fn begin(what: String, total: Option<u64>) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target = if terminal {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(total, target).with_message(what.clone());
        let template = match total {
            Some(_) => "  {spinner} {msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {elapsed}",
            None => "  {spinner} {msg} {elapsed}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        if !terminal {
            eprintln!("hayloft: {what} ...");
        }
        Self {
            what,
            bar,
            start: Instant::now(),
            hidden_for: None,
        }
    }

    /// So far.
    pub fn at(&self, position: u64) {
        self.bar.set_position(position);
    }

    /// So far, of a total that has changed.
    pub fn at_of(&self, position: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(position);
    }

    /// What is known so far, of a step of unknown length.
    pub fn note(&self, so_far: &str) {
        self.bar.set_message(format!("{}: {so_far}", self.what));
    }

    /// Ends the step with what came of it; returns how long it took.
    pub fn done(self, result: &str) -> Duration {
        let took = self.start.elapsed();
        self.bar.finish_and_clear();
        if self.hidden_for.is_some() {
            return took;
        }
        let mark = if result.is_empty() {
            String::new()
        } else {
            format!(": {result}")
        };
        eprintln!("hayloft: {}{mark} ({:.1} s)", self.what, took.as_secs_f64());
        took
    }
}

/// A line to the user.
pub fn say(line: &str) {
    eprintln!("hayloft: {line}");
}

/// Bytes for people: `12.3 MB`.
pub fn megabytes(bytes: u64) -> String {
    let tenths = (u128::from(bytes) * 10).div_ceil(1_000_000);
    format!("{}.{} MB", tenths / 10, tenths % 10)
}

/// MB (10^6 bytes) per second.
pub fn rate(bytes: u64, took: Duration) -> f64 {
    let millis = u32::try_from(took.as_millis()).unwrap_or(u32::MAX).max(1);
    let kilobytes = u32::try_from(bytes / 1000).unwrap_or(u32::MAX);
    f64::from(kilobytes) / f64::from(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_steps_show_up_when_they_last() {
        let mut step = ProgressStep::short("something");
        step.tick();
        assert!(step.hidden_for.is_some(), "not a word in the first second");
        step.start -= SHORT;
        step.tick();
        assert!(step.hidden_for.is_none());
        assert!(step.done("") >= SHORT, "its time counts from the begin");
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(megabytes(0), "0.0 MB");
        assert_eq!(megabytes(12_300_000), "12.3 MB");
        assert!((rate(100_000_000, Duration::from_secs(2)) - 50.0).abs() < 0.001);
    }
}
