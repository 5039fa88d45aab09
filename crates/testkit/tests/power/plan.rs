//! How many cuts, how long clients write before each, and from which seed.

use hayloft_testkit::TestkitError;
use hayloft_testkit::error::Result;
use hayloft_testkit::modelled::Params;
use hayloft_testkit::node::Kind;
use hayloft_testkit::power::writers::{Dice, Syncs};
use hayloft_testkit::power::{Event, Round};
use std::fmt;
use std::time::Duration;

/// How many cuts in all, of which one in five is over a volatile cache.
const CUTS: &str = "HAYLOFT_POWER_CUTS";
/// Longest time that clients write before a cut, seconds.
const SECONDS: &str = "HAYLOFT_POWER_SECONDS";
/// The seed of everything random.
const SEED: &str = "HAYLOFT_POWER_SEED";
const CUTS_DEFAULT: u64 = 10;
/// Long enough that half of what is acknowledged is older than 15 s.
const SECONDS_DEFAULT: u64 = 34;
/// With a volatile cache nothing has to become old.
const VOLATILE_SECONDS: u64 = 10;

/// See the [module](self).
pub struct CutPlan {
    cuts: u64,
    seconds: u64,
    seed: u64,
}

impl fmt::Display for CutPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cuts,
            seconds,
            seed,
        } = self;
        write!(f, "{CUTS}={cuts} {SECONDS}={seconds} {SEED}={seed}")
    }
}

fn number(name: &str, usual: u64) -> Result<u64> {
    match std::env::var(name) {
        Err(_) => Ok(usual),
        Ok(text) => text
            .parse()
            .map_err(|_| TestkitError::Talk(format!("{name}: {text:?} is no number"))),
    }
}

impl CutPlan {
    /// What the variables say, or as many cuts as each test run can afford.
    pub fn from_environment() -> Result<Self> {
        let now = std::time::UNIX_EPOCH.elapsed();
        let any = now.map_or(1, |t| u64::from(t.subsec_nanos()));
        Ok(Self {
            cuts: number(CUTS, CUTS_DEFAULT)?.max(1),
            seconds: number(SECONDS, SECONDS_DEFAULT)?.max(1),
            seed: number(SEED, any)?,
        })
    }

    /// Rounds that cut so many disks at once. Of four in a row each is another sort: with syncs or
    /// without, and with one's own node or Apache's afterwards.
    pub fn rounds(&self, disks: usize) -> Vec<Round> {
        let mut dice = Dice::new(self.seed);
        let count = (self.cuts * 4 / 5).div_ceil(disks.max(1) as u64).max(1);
        let round = |number: u64| Round {
            event: Event::PowerCut,
            next: (number % 4 >= 2).then_some(Kind::Apache),
            syncs: if number.is_multiple_of(2) {
                Syncs::None
            } else {
                Syncs::Some
            },
            writing: Duration::from_secs(self.seconds - dice.below(self.seconds / 4)),
            seed: dice.below(u64::MAX >> 1),
        };
        (0..count).map(round).collect()
    }

    /// Rounds over stubs, which no node of Apache's starts on: half as many cuts.
    pub fn stub_rounds(&self, disks: usize) -> Vec<Round> {
        let half = Self {
            cuts: self.cuts.div_ceil(2),
            seconds: self.seconds,
            seed: self.seed ^ 2,
        };
        let mut rounds = half.rounds(disks);
        for round in &mut rounds {
            round.next = None;
        }
        rounds
    }

    /// The seed and the number of cuts while replicas change their places.
    pub fn of_moves(&self) -> (u64, u64) {
        (self.seed ^ 4, self.cuts)
    }

    /// Rounds over devices that lose what was not flushed: all clients ask for syncs.
    pub fn volatile_rounds(&self, disks: usize) -> Vec<Round> {
        let mut dice = Dice::new(self.seed ^ 1);
        let count = (self.cuts / 5).div_ceil(disks.max(1) as u64).max(1);
        let round = |_| Round {
            event: Event::PowerCut,
            next: None,
            syncs: Syncs::All,
            writing: Duration::from_millis(VOLATILE_SECONDS * 500 + dice.below(5000)),
            seed: dice.below(u64::MAX >> 1),
        };
        (0..count).map(round).collect()
    }
}

/// A device that takes no time worth mentioning.
pub fn fast() -> Params {
    Params {
        read_bytes_s: 2_000_000_000,
        write_bytes_s: 2_000_000_000,
        seek_average_us: 0,
        seek_shortest_us: 0,
        rpm: 1_000_000,
        buffer_bytes: 0,
        interface_bytes_s: 4_000_000_000,
        ..Params::default()
    }
}
