//! Whether the clock of this host jumped: by one that did, everything or nothing looks cold.

use serde::{Deserialize, Serialize};

/// Difference from which on a clock has jumped, milliseconds.
const JUMP_MS: u64 = 3_600_000;

/// A moment by two clocks, of which one cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockMark {
    /// Milliseconds since 1970, by the clock that can be set.
    pub wall_ms: u64,
    /// Milliseconds since the host was started.
    up_ms: u64,
    /// Which start that was.
    boot: String,
}

impl ClockMark {
    /// Now.
    pub fn now() -> Self {
        let up = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let part = |value: i64| u64::try_from(value).unwrap_or(0);
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        Self {
            wall_ms: hayloft_store::now_ms(),
            up_ms: part(up.tv_sec) * 1000 + part(up.tv_nsec) / 1_000_000,
            boot: boot.unwrap_or_default().trim().to_owned(),
        }
    }

    /// Whether the clock was set by more than an hour between `before` and this. Across a start of
    /// the host only a clock that went back is known.
    pub fn jumped_since(&self, before: &Self) -> bool {
        if self.boot != before.boot {
            return self.wall_ms.saturating_add(JUMP_MS) < before.wall_ms;
        }
        let up = self.up_ms.saturating_sub(before.up_ms);
        let wanted = before.wall_ms.saturating_add(up);
        are_apart(self.wall_ms, wanted)
    }
}

/// Whether two clocks are apart by more than an hour.
pub fn are_apart(one_ms: u64, other_ms: u64) -> bool {
    one_ms.abs_diff(other_ms) > JUMP_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_is_known() {
        let mark = |wall_ms, up_ms, boot: &str| ClockMark {
            wall_ms,
            up_ms,
            boot: boot.to_owned(),
        };
        let before = mark(100 * JUMP_MS, 5, "a");
        for (now, jumped) in [
            (mark(124 * JUMP_MS, 5 + 24 * JUMP_MS, "a"), false),
            (mark(125 * JUMP_MS, 5 + 24 * JUMP_MS, "a"), false),
            (mark(126 * JUMP_MS, 5 + 24 * JUMP_MS, "a"), true),
            (mark(90 * JUMP_MS, 6, "a"), true),
            (mark(900 * JUMP_MS, 6, "b"), false),
            (mark(90 * JUMP_MS, 6, "b"), true),
        ] {
            assert_eq!(now.jumped_since(&before), jumped, "{now:?}");
        }
        assert!(are_apart(JUMP_MS + 1, 0) && are_apart(0, JUMP_MS + 1) && !are_apart(JUMP_MS, 0));
        let now = ClockMark::now();
        assert!(!ClockMark::now().jumped_since(&now) && !now.boot.is_empty());
    }
}
