//! Which operations fail, and how: the rules behind [`Faulty`](super::Faulty).

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::io::Errno;

use crate::class::IoClass;
use crate::error::{IoError, IoOp};
use crate::locks;

/// What a rule does to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Fails without being tried, with this errno (such as `libc::EIO`).
    Errno(i32),
    /// Waits first, then goes on to the next rule.
    Delay(Duration),
    /// As [`Delay`](Effect::Delay), but a read, write or sync keeps a thread of the disk meanwhile,
    /// as with a disk that does not answer: the disk sees a transfer that goes on and on.
    Stall(Duration),
    /// Transfers only the first `bytes`: a read ends there as if the file did; a write fails there
    /// with `errno`. Other operations are not touched.
    Short {
        /// How much is transferred.
        bytes: usize,
        /// What a write fails with.
        errno: i32,
    },
    /// Inverts the lowest bit of the byte at this index of what was read or is written. Other
    /// operations, and transfers that do not reach so far, are not touched.
    Flip(usize),
}

/// Which of the matching operations a rule hits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultWhen {
    /// Every one.
    Always,
    /// Only the n-th, counted from 1.
    Nth(u64),
    /// The n-th and all after it, counted from 1.
    From(u64),
    /// Each with this probability, 0..=1.
    Chance(f64),
}

type PathTest = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// One rule: operations that match all its conditions count; `when` picks among them.
#[derive(Clone)]
pub struct FaultRule {
    ops: Vec<IoOp>,
    classes: Vec<IoClass>,
    path: Option<PathTest>,
    when: FaultWhen,
    times: u64,
    effect: Effect,
}

impl FaultRule {
    /// A rule that hits everything, always.
    #[must_use]
    pub fn new(effect: Effect) -> Self {
        Self {
            ops: Vec::new(),
            classes: Vec::new(),
            path: None,
            when: FaultWhen::Always,
            times: u64::MAX,
            effect,
        }
    }

    /// Only these operations (those of an earlier call included).
    #[must_use]
    pub fn on(mut self, ops: &[IoOp]) -> Self {
        self.ops.extend_from_slice(ops);
        self
    }

    /// Only this class (or one of an earlier call).
    #[must_use]
    pub fn in_class(mut self, class: IoClass) -> Self {
        self.classes.push(class);
        self
    }

    /// Only paths for which `test` holds.
    #[must_use]
    pub fn at(mut self, test: impl Fn(&Path) -> bool + Send + Sync + 'static) -> Self {
        self.path = Some(Arc::new(test));
        self
    }

    /// Which of the matching operations.
    #[must_use]
    pub fn when(mut self, when: FaultWhen) -> Self {
        self.when = when;
        self
    }

    /// At most so many times.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    fn matches(&self, class: IoClass, op: IoOp, path: &Path) -> bool {
        (self.ops.is_empty() || self.ops.contains(&op))
            && (self.classes.is_empty() || self.classes.contains(&class))
            && self.path.as_ref().is_none_or(|test| test(path))
    }
}

impl fmt::Debug for FaultRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultRule")
            .field("ops", &self.ops)
            .field("classes", &self.classes)
            .field("by_path", &self.path.is_some())
            .field("when", &self.when)
            .field("times", &self.times)
            .field("effect", &self.effect)
            .finish()
    }
}

/// Names a rule that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(u64);

#[derive(Debug)]
struct Active {
    id: FaultId,
    rule: FaultRule,
    seen: u64,
    fired: u64,
}

#[derive(Debug)]
struct ActiveRules {
    rules: Vec<Active>,
    next_id: u64,
    random: u64,
}

impl ActiveRules {
    /// SplitMix64 (Steele, Lea, Flood 2014), as a fraction of 1.
    #[expect(
        clippy::cast_precision_loss,
        reason = "53 bits are what a fraction holds"
    )]
    fn fraction(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        (z >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// A set of rules that can be changed while engines run under it.
#[derive(Debug)]
pub struct Faults {
    state: Mutex<ActiveRules>,
}

/// What the rules have decided for one operation.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) delay: Duration,
    pub(super) stall: Duration,
    pub(super) errno: Option<i32>,
    pub(super) short: Option<(usize, i32)>,
    pub(super) flip: Option<usize>,
}

impl Faults {
    /// No rules yet; chances are drawn from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(ActiveRules {
                rules: Vec::new(),
                next_id: 0,
                random: seed,
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, ActiveRules> {
        locks::lock(&self.state)
    }

    /// Adds a rule; rules act in the order in which they were added.
    pub fn add(&self, rule: FaultRule) -> FaultId {
        let mut state = self.lock();
        let id = FaultId(state.next_id);
        state.next_id += 1;
        state.rules.push(Active {
            id,
            rule,
            seen: 0,
            fired: 0,
        });
        id
    }

    /// Removes a rule, if it is still there.
    pub fn remove(&self, id: FaultId) {
        self.lock().rules.retain(|active| active.id != id);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.lock().rules.clear();
    }

    /// How often a rule has acted; 0 once it is removed.
    #[must_use]
    pub fn fired(&self, id: FaultId) -> u64 {
        self.lock()
            .rules
            .iter()
            .find(|active| active.id == id)
            .map_or(0, |active| active.fired)
    }

    pub(super) fn judge(&self, class: IoClass, op: IoOp, path: &Path) -> Verdict {
        let mut verdict = Verdict::default();
        let mut state = self.lock();
        let mut rules = std::mem::take(&mut state.rules);
        for active in &mut rules {
            if active.fired >= active.rule.times || !active.rule.matches(class, op, path) {
                continue;
            }
            active.seen += 1;
            let hit = match active.rule.when {
                FaultWhen::Always => true,
                FaultWhen::Nth(n) => active.seen == n,
                FaultWhen::From(n) => active.seen >= n,
                FaultWhen::Chance(p) => state.fraction() < p,
            };
            if !hit {
                continue;
            }
            active.fired += 1;
            match active.rule.effect {
                Effect::Errno(errno) => {
                    verdict.errno = Some(errno);
                    break;
                }
                Effect::Delay(delay) => verdict.delay += delay,
                Effect::Stall(stall) => verdict.stall += stall,
                Effect::Short { bytes, errno } => verdict.short = Some((bytes, errno)),
                Effect::Flip(at) => verdict.flip = Some(at),
            }
        }
        state.rules = rules;
        verdict
    }
}

/// The error that a rule asks for.
pub(super) fn injected(op: IoOp, path: &Path, errno: i32) -> IoError {
    IoError::from_errno(op, path, Errno::from_raw_os_error(errno)).with_context("injected")
}
