//! Random mishaps over parity: four virtual nodes with 4+1 over six disks, a stock NameNode, stock
//! clients, one replica of each block, so that parity alone stands between a disk and its loss.
//!
//! After every step the suite asks for three things. Every byte that should be there is there.
//! Every lost one is told: the NameNode lists its file as corrupt or missing. What `hayloft parity
//! status` says is so. [`lab`]: disks and nodes. [`ledger`]: what was written, and what may be
//! lost. [`mishap`]: what happens to nodes and disks, and how each is repaired.
//!
//! `HAYLOFT_MISHAPS_SECONDS` says how long (600), `HAYLOFT_MISHAPS_SEED` repeats a run,
//! `HAYLOFT_MISHAPS_ONLY` names mishaps, with commas between, and takes no others.

mod lab;
mod ledger;
mod mishap;
mod truth;

use hayloft_testkit::error::Result;
use hayloft_testkit::mounts::in_own_namespace;
use hayloft_testkit::power::writers::Dice;
use hayloft_testkit::suite::passed;
use hayloft_testkit::{Outcome, Suite, TestkitError};
use lab::Lab;
use mishap::Mishap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const SECONDS: &str = "HAYLOFT_MISHAPS_SECONDS";
const SECONDS_DEFAULT: u64 = 600;
const SEED: &str = "HAYLOFT_MISHAPS_SEED";
const ONLY: &str = "HAYLOFT_MISHAPS_ONLY";

fn main() -> ExitCode {
    in_own_namespace();
    Suite::run("mishaps", |suite| {
        if !suite.may_mount_disks("everything") {
            return Ok(());
        }
        let mut on = suite.group(Lab::start, |lab, failed| lab.cluster.conclude(failed));
        on.case("every_byte_is_there_or_told", |lab| {
            MishapPlan::from_environment()?.carry_out(lab)
        });
        Ok(())
    })
}

/// How long mishaps go on, which, and from which seed.
struct MishapPlan {
    seconds: u64,
    seed: u64,
    of: Vec<Mishap>,
}

fn number(name: &str, usual: u64) -> Result<u64> {
    match std::env::var(name) {
        Err(_) => Ok(usual),
        Ok(text) => text
            .parse()
            .map_err(|_| TestkitError::Talk(format!("{name}: {text:?} is no number"))),
    }
}

impl MishapPlan {
    fn from_environment() -> Result<Self> {
        let now = std::time::UNIX_EPOCH.elapsed();
        let any = now.map_or(1, |t| u64::from(t.subsec_nanos()));
        let named = |name: &str| {
            Mishap::named(name).ok_or_else(|| {
                let known: Vec<_> = Mishap::ALL.iter().map(|m| m.name()).collect();
                TestkitError::Talk(format!("{ONLY}: {name:?} is none of {known:?}"))
            })
        };
        Ok(Self {
            seconds: number(SECONDS, SECONDS_DEFAULT)?,
            seed: number(SEED, any)?,
            of: match std::env::var(ONLY) {
                Ok(names) => names.split(',').map(named).collect::<Result<_>>()?,
                Err(_) => Mishap::ALL.to_vec(),
            },
        })
    }

    /// Takes the mishaps in a new order each time, so that none is left out for long.
    fn carry_out(&self, lab: &mut Lab) -> Result<Outcome> {
        println!("mishaps: {SEED}={} {SECONDS}={}", self.seed, self.seconds);
        let mut dice = Dice::new(self.seed);
        let began = Instant::now();
        let long = Duration::from_secs(self.seconds);
        let mut order: Vec<Mishap> = Vec::new();
        let mut steps = 0;
        lab.work(&mut dice)?;
        lab.settle()?;
        while began.elapsed() < long {
            if order.is_empty() {
                order = shuffled(&self.of, &mut dice);
            }
            let Some(mishap) = order.pop() else { break };
            steps += 1;
            let step = Instant::now();
            println!(
                "mishaps: step {steps}, {} s: {}",
                began.elapsed().as_secs(),
                mishap.name()
            );
            lab.step(mishap, &mut dice).map_err(|error| {
                let (name, seed) = (mishap.name(), self.seed);
                TestkitError::Expectation(format!("step {steps}, {name}, {SEED}={seed}: {error}"))
            })?;
            println!(
                "mishaps: step {steps} took {} s; {}",
                step.elapsed().as_secs(),
                lab.ledger
            );
        }
        println!(
            "mishaps: {steps} steps in {} s; {}",
            began.elapsed().as_secs(),
            lab.ledger
        );
        passed()
    }
}

/// A number below `bound`, or 0.
fn below(dice: &mut Dice, bound: usize) -> usize {
    usize::try_from(dice.below(bound as u64)).unwrap_or(0)
}

fn shuffled(all: &[Mishap], dice: &mut Dice) -> Vec<Mishap> {
    let mut left = all.to_vec();
    let mut order = Vec::new();
    while !left.is_empty() {
        order.push(left.swap_remove(below(dice, left.len())));
    }
    order
}
