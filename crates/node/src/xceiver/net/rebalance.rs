//! Which thread has clearly more to do than another, and how many connections should move.

use std::time::Duration;

/// A thread with less to do has room for whatever comes; per mille of its time.
const BUSY_MIN: u64 = 600;

/// A move has to take at least this much from the busiest thread; per mille of what it has to do.
const GAIN_MIN: u64 = 100;

/// What a thread did for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Per mille of the time.
    busy: u64,
    /// Connections that had it do so, about.
    connections: u64,
}

/// Connections that should move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relief {
    /// Thread that has too many.
    pub from: usize,
    /// Thread that has room.
    pub to: usize,
    /// How many.
    pub count: usize,
}

impl Use {
    /// A thread that was `busy` for so much of `time`, with `connections` that asked for something.
    #[must_use]
    pub fn new(busy: Duration, time: Duration, connections: usize) -> Self {
        let busy = busy.as_micros().saturating_mul(1000) / time.as_micros().max(1);
        Self {
            busy: u64::try_from(busy).unwrap_or(u64::MAX).min(1000),
            connections: u64::try_from(connections).unwrap_or(u64::MAX),
        }
    }
}

/// What to do about the busiest thread: nothing unless it is short of time, several connections
/// share it, and another one is left clearly better off than it was after taking one. All
/// connections of a thread are taken to be alike, so that half the difference moves.
#[must_use]
pub fn relief(uses: &[Use]) -> Option<Relief> {
    let (from, hot) = uses.iter().enumerate().max_by_key(|(_, u)| u.busy)?;
    let (to, cold) = uses.iter().enumerate().min_by_key(|(_, u)| u.busy)?;
    if hot.busy < BUSY_MIN || hot.connections < 2 {
        return None;
    }
    let each = hot.busy / hot.connections;
    if cold.busy + each > hot.busy * (1000 - GAIN_MIN) / 1000 {
        return None;
    }
    let half = (hot.busy - cold.busy) * hot.connections / (2 * hot.busy);
    Some(Relief {
        from,
        to,
        count: usize::try_from(half).unwrap_or(1).max(1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(uses: &[(u64, usize)]) -> Option<(usize, usize, usize)> {
        let time = Duration::from_secs(1);
        let uses = uses
            .iter()
            .map(|(busy, n)| Use::new(Duration::from_millis(*busy), time, *n));
        let relief = relief(&uses.collect::<Vec<_>>())?;
        Some((relief.from, relief.to, relief.count))
    }

    #[test]
    fn half_of_the_difference_moves_to_the_idlest() {
        assert_eq!(found(&[(1000, 8), (0, 0)]), Some((0, 1, 4)));
        assert_eq!(found(&[(0, 0), (1000, 2)]), Some((1, 0, 1)));
        assert_eq!(
            found(&[(1000, 4), (500, 2), (1000, 4), (100, 1)]).map(|f| f.1),
            Some(3)
        );
        assert_eq!(found(&[(1000, 4), (500, 2)]), Some((0, 1, 1)));
    }

    #[test]
    fn nothing_moves_where_it_would_not_help() {
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[(1000, 8)]), None, "there is no other");
        assert_eq!(
            found(&[(1000, 1), (0, 0)]),
            None,
            "it would be the same there"
        );
        assert_eq!(found(&[(500, 8), (0, 0)]), None, "there is time enough");
        assert_eq!(found(&[(1000, 3), (600, 2)]), None, "it would turn round");
        assert_eq!(found(&[(1000, 8), (1000, 1)]), None, "nobody has time");
        assert_eq!(found(&[(5000, 8), (990, 1)]), None, "a clock that jumped");
    }
}
