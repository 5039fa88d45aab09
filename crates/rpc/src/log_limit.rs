//! Log lines that any stranger can cause, within limits.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Keeps peers that talk nonsense from filling the log.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<LogWindow>);

#[derive(Debug, Default)]
struct LogWindow {
    window: Option<Instant>,
    said: u32,
    skipped: u64,
}

/// Lines a window may hold.
const LINES_PER_WINDOW: u32 = 10;
const WINDOW: Duration = Duration::from_secs(10);

impl LogLimit {
    /// Whether a line may be logged now; the number of lines that were left out before it.
    pub fn may_log(&self) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if state
            .window
            .is_none_or(|start| now.duration_since(start) >= WINDOW)
        {
            state.window = Some(now);
            state.said = 0;
        }
        if state.said < LINES_PER_WINDOW {
            state.said += 1;
            return Some(std::mem::take(&mut state.skipped));
        }
        state.skipped += 1;
        None
    }
}

/// Most characters of a stranger's words in a line.
const WORDS_MAX: usize = 200;

/// A stranger's words as a line may have them: short, and without control characters.
#[must_use]
pub fn words(text: &str) -> String {
    let short = text.chars().take(WORDS_MAX);
    short.flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_strangers_are_cut_and_escaped() {
        assert_eq!(words("KERBEROS"), "KERBEROS");
        assert_eq!(words("a\nb\u{1b}"), "a\\nb\\u{1b}");
        assert_eq!(words(&"x".repeat(1000)).len(), WORDS_MAX);
    }

    #[test]
    fn a_flood_of_lines_is_cut() {
        let limit = LogLimit::default();
        let said = (0..1000).filter(|_| limit.may_log().is_some()).count();
        assert_eq!(said, 10);
    }
}
