//! What limited a row, by what was measured, and what a ratio may claim.

use super::spread::Spread;

/// What is in use for more than this share of the time is a limit.
pub const BUSY: f64 = 0.8;
/// Processes that wait for a processor for more than this share of the wall time are held up.
pub const WAITING: f64 = 0.05;

/// What limited a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The processors of the machine.
    Processor,
    /// A disk.
    Disk,
    /// A link.
    Link,
    /// The peer's own processes kept one processor busy while another was free.
    Peer,
    /// The client kept one processor busy for each of its streams: the rate is its own.
    Client,
    /// Nothing that was measured.
    Nothing,
    /// The data does not tell.
    Untold,
}

impl Limit {
    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Processor => "processor",
            Self::Disk => "disk",
            Self::Link => "link",
            Self::Peer => "peer",
            Self::Client => "client",
            Self::Nothing => "none named",
            Self::Untold => "not told",
        }
    }
}

/// Shares that were measured of a row, 0 to 1; `None`: not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    /// Of all processors in use.
    pub cpu: Option<f64>,
    /// Of the wall time in which threads of clients and nodes waited for a processor, all threads
    /// together; on one disk, in which some thread of the machine waited.
    pub waited: Option<f64>,
    /// Of the time in which the busiest disk had a request.
    pub disk: Option<f64>,
    /// Of the rate of the busiest link.
    pub link: Option<f64>,
    /// Of one processor that the peer's own processes used.
    pub peer: Option<f64>,
    /// Of one processor that the client used for each stream.
    pub client: Option<f64>,
}

fn over(share: Option<f64>, most: f64) -> bool {
    share.is_some_and(|share| share > most)
}

impl Shares {
    /// What limited the row. Where all processors are in use and no thread waits for one, a client
    /// that has no more to give is what the others wait for.
    #[must_use]
    pub fn limit(&self) -> Limit {
        let by_client = over(self.client, BUSY);
        if self.lacked_processors() {
            let waited = self.waited.is_none_or(|waited| waited > WAITING);
            return if by_client && !waited {
                Limit::Client
            } else {
                Limit::Processor
            };
        }
        let both = [(Limit::Disk, self.disk), (Limit::Link, self.link)];
        let busy = both.into_iter().filter(|(_, share)| over(*share, BUSY));
        let busiest = busy.max_by(|(_, a), (_, b)| a.unwrap_or(0.0).total_cmp(&b.unwrap_or(0.0)));
        match busiest {
            Some((limit, _)) => limit,
            None if over(self.peer, BUSY) => Limit::Peer,
            None if by_client => Limit::Client,
            None if self.cpu.is_none() => Limit::Untold,
            None => Limit::Nothing,
        }
    }

    fn lacked_processors(&self) -> bool {
        over(self.cpu, BUSY) || over(self.waited, WAITING)
    }

    /// Whether it is known that processors did not limit the row.
    fn had_processors(&self) -> bool {
        self.cpu.is_some() && self.waited.is_some() && !self.lacked_processors()
    }

    /// Whether it is known that it gave all that disk or link, or its own processes, let it.
    fn was_at_its_limit(&self) -> bool {
        let others = [Limit::Nothing, Limit::Client];
        self.had_processors() && !others.contains(&self.limit())
    }
}

/// What a ratio to a stock node may claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lead {
    /// Better, beyond the ranges; no processor was the limit of either, and something else was that
    /// of the stock node.
    Better,
    /// Worse, beyond the ranges, whatever the limit was: a loss is never hidden.
    Worse,
    /// Neither.
    Open,
}

/// A peer's value with what limited it, beside the stock node's.
#[must_use]
pub fn lead(own: (Spread, Shares), stock: (Spread, Shares), more_is_better: bool) -> Lead {
    if own.0.overlaps(&stock.0) {
        return Lead::Open;
    }
    match (own.0.median > stock.0.median) == more_is_better {
        false => Lead::Worse,
        true if own.1.had_processors() && stock.1.was_at_its_limit() => Lead::Better,
        true => Lead::Open,
    }
}

impl Lead {
    /// What data may claim that is signed or not: without a commit there is no win.
    #[must_use]
    pub fn of_signed(self, signed: bool) -> Self {
        match self {
            Self::Better if !signed => Self::Open,
            lead => lead,
        }
    }

    /// A ratio with what it claims: bold where it claims something.
    #[must_use]
    pub fn text(self, ratio: f64) -> String {
        match self {
            Self::Better => format!("**{ratio:.2}**"),
            Self::Worse => format!("**{ratio:.2} worse**"),
            Self::Open => format!("{ratio:.2}"),
        }
    }

    /// What [`Lead::text`] means, for a page.
    pub const MEANING: &'static str = "A ratio is **bold** where the ranges do not overlap. \
        Unless it is worse, processors must also\nhave limited neither side, something else the \
        stock node, and the data be signed.";
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Shares = Shares {
        cpu: Some(0.3),
        waited: Some(0.01),
        disk: Some(0.5),
        link: Some(0.2),
        peer: Some(0.4),
        client: Some(0.5),
    };

    #[test]
    fn the_limit_is_what_was_busy_and_processors_come_first() {
        assert_eq!(IDLE.limit(), Limit::Nothing);
        let of = |change: fn(&mut Shares)| {
            let mut shares = IDLE;
            change(&mut shares);
            shares.limit()
        };
        assert_eq!(of(|s| s.cpu = Some(0.8)), Limit::Nothing, "not above");
        assert_eq!(of(|s| s.cpu = Some(0.81)), Limit::Processor);
        assert_eq!(of(|s| s.waited = Some(0.06)), Limit::Processor);
        assert_eq!(of(|s| s.waited = Some(0.05)), Limit::Nothing);
        assert_eq!(of(|s| s.disk = Some(0.9)), Limit::Disk);
        assert_eq!(of(|s| s.link = Some(0.85)), Limit::Link);
        assert_eq!(of(|s| s.peer = Some(0.95)), Limit::Peer);
        assert_eq!(of(|s| s.client = Some(0.95)), Limit::Client);
        let both = |s: &mut Shares| (s.client, s.cpu) = (Some(0.95), Some(0.9));
        assert_eq!(of(both), Limit::Client, "no thread waits for a processor");
        let waits = |s: &mut Shares| (s.client, s.waited) = (Some(0.95), Some(0.06));
        assert_eq!(of(waits), Limit::Processor);
        let busiest = |s: &mut Shares| (s.disk, s.link) = (Some(0.85), Some(0.95));
        assert_eq!(of(busiest), Limit::Link);
        let both = |s: &mut Shares| (s.disk, s.cpu) = (Some(0.99), Some(0.9));
        assert_eq!(of(both), Limit::Processor);
        assert_eq!(of(|s| s.cpu = None), Limit::Untold);
    }

    #[test]
    fn a_win_needs_ranges_apart_and_processors_to_spare() {
        let of = |values: &[f64]| Spread::of(values.to_vec()).expect("values");
        let (slow, fast) = (of(&[1.0, 1.1]), of(&[2.0, 2.1]));
        let full = Shares {
            disk: Some(0.95),
            ..IDLE
        };
        let busy = Shares {
            cpu: Some(0.95),
            ..IDLE
        };
        let untold = Shares { cpu: None, ..IDLE };
        let by_client = Shares {
            client: Some(0.95),
            ..IDLE
        };
        assert_eq!(lead((fast, IDLE), (slow, by_client), true), Lead::Open);
        assert_eq!(lead((fast, IDLE), (slow, full), true), Lead::Better);
        let idle = "a stock node that nothing limited is not at its best";
        assert_eq!(lead((fast, IDLE), (slow, IDLE), true), Lead::Open, "{idle}");
        let unwatched = Shares {
            waited: None,
            ..full
        };
        assert_eq!(lead((fast, IDLE), (slow, unwatched), true), Lead::Open);
        assert_eq!(lead((fast, busy), (slow, full), true), Lead::Open);
        assert_eq!(lead((fast, IDLE), (slow, busy), true), Lead::Open);
        assert_eq!(lead((fast, untold), (slow, full), true), Lead::Open);
        assert_eq!(
            lead((fast, IDLE), (of(&[1.0, 2.0]), IDLE), true),
            Lead::Open
        );
        assert_eq!(lead((slow, busy), (fast, busy), true), Lead::Worse);
        assert_eq!(lead((slow, IDLE), (fast, full), false), Lead::Better);
        assert_eq!(
            lead((of(&[2.0]), IDLE), (of(&[1.0]), IDLE), true),
            Lead::Open
        );
        assert_eq!(Lead::Better.of_signed(false), Lead::Open);
        assert_eq!(Lead::Better.of_signed(true), Lead::Better);
        assert_eq!(Lead::Worse.of_signed(false), Lead::Worse);
        assert_eq!(Lead::Better.text(2.0), "**2.00**");
        assert_eq!(Lead::Worse.text(0.5), "**0.50 worse**");
        assert_eq!(Lead::Open.text(1.004), "1.00");
    }
}
