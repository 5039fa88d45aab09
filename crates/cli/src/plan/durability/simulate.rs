//! The same cluster in virtual time, event by event: what the formulas are checked against.
//!
//! Nothing here uses a formula of the model. Disks, hosts and domains die, units become latently
//! bad, queues copy and rebuild block by block, the scrub passes; blocks without a replica are
//! counted.

use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use super::described_cluster::{ClusterCase, Keeping};
use super::events::{ClusterEvent, DueEvent, PARITY, UnitState};
use super::random::SeededRandom;
use super::unit_places::{UnitPlaces, index};

/// What a run lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RunLosses {
    /// Blocks.
    pub blocks: u64,
    /// Events that lost at least one.
    pub events: u64,
}

/// A cluster that lives.
pub struct Simulation<'a> {
    case: &'a ClusterCase,
    keeping: &'a Keeping,
    random: SeededRandom,
    now: f64,
    due: BinaryHeap<DueEvent>,
    number: u64,
    places: UnitPlaces,
    /// Units to copy: those of blocks with one replica left, and others.
    urgent: VecDeque<(u32, u32)>,
    usual: VecDeque<(u32, u32)>,
    copying: bool,
    /// Units to rebuild, by node; the first one is at work.
    rebuilding: Vec<VecDeque<(u32, u32)>>,
    /// Blocks that this event took a replica of.
    touched: BTreeSet<u32>,
    lost: RunLosses,
}

impl<'a> Simulation<'a> {
    /// A whole cluster with its blocks placed at random, `apart` in different domains.
    pub fn new(case: &'a ClusterCase, keeping: &'a Keeping, apart: bool, seed: u64) -> Self {
        let mut random = SeededRandom::new(seed);
        Self {
            case,
            keeping,
            places: UnitPlaces::new(case, keeping, apart, &mut random),
            random,
            now: 0.0,
            due: BinaryHeap::new(),
            number: 0,
            urgent: VecDeque::new(),
            usual: VecDeque::new(),
            copying: false,
            rebuilding: vec![VecDeque::new(); case.nodes as usize],
            touched: BTreeSet::new(),
            lost: RunLosses::default(),
        }
    }

    /// Blocks that there are.
    pub fn blocks(&self) -> usize {
        self.places.blocks.len()
    }

    /// Lives on for so many years, and says what was lost in them.
    pub fn run(&mut self, years: f64) -> RunLosses {
        for event in [
            ClusterEvent::DiskDies,
            ClusterEvent::HostDies,
            ClusterEvent::DomainDies,
            ClusterEvent::Outage,
            ClusterEvent::LatentError,
        ] {
            self.again(event);
        }
        while let Some(DueEvent(at, _, event)) = self.due.pop() {
            if at > years {
                break;
            }
            self.now = at;
            self.happens(event);
            self.judge();
        }
        self.lost
    }

    fn after(&mut self, years: f64, event: ClusterEvent) {
        self.number += 1;
        self.due
            .push(DueEvent(self.now + years, self.number, event));
    }

    /// Draws when an event of the whole cluster comes next.
    fn again(&mut self, event: ClusterEvent) {
        let case = self.case;
        let rate = match event {
            ClusterEvent::DiskDies => case.disk_rate * case.all_disks(),
            ClusterEvent::HostDies => case.host_rate * f64::from(case.nodes),
            ClusterEvent::DomainDies => case.domain_rate * f64::from(case.domains),
            ClusterEvent::Outage => case.outages,
            _ => case.latent_rate * super::markov_chain::number(self.places.units.len()),
        };
        if rate > 0.0 {
            let years = self.random.exponential() / rate;
            self.after(years, event);
        }
    }

    fn happens(&mut self, event: ClusterEvent) {
        match event {
            ClusterEvent::DiskDies => {
                let disk = self.random.below(self.places.disks.len());
                self.disk_dies(disk);
                self.again(event);
            }
            ClusterEvent::HostDies => {
                let node = self.random.below(self.case.nodes as usize);
                self.host_dies(index(node));
                self.again(event);
            }
            ClusterEvent::DomainDies => {
                let domain = index(self.random.below(self.case.domains as usize));
                let of = |node: &u32| node % self.case.domains == domain;
                let nodes: Vec<u32> = (0..self.case.nodes).filter(of).collect();
                nodes.into_iter().for_each(|node| self.host_dies(node));
                self.again(event);
            }
            ClusterEvent::Outage => {
                for node in 0..self.case.nodes {
                    if self.random.share() < self.case.outage_loss {
                        self.host_dies(node);
                    }
                }
                self.again(event);
            }
            ClusterEvent::LatentError => {
                let unit = index(self.random.below(self.places.units.len()));
                self.latent_error(unit);
                self.again(event);
            }
            ClusterEvent::Scrubbed { unit, age } => self.scrubbed(unit, age),
            ClusterEvent::Noticed { unit, age } if self.is(unit, age, UnitState::Gone) => {
                self.wants_copy(unit);
            }
            ClusterEvent::Noticed { .. } => {}
            ClusterEvent::Copied { unit, age } => self.copied(unit, age),
            ClusterEvent::Rebuilt { node } => self.rebuilt(node),
        }
    }

    fn is(&self, unit: u32, age: u32, state: UnitState) -> bool {
        let unit = &self.places.units[unit as usize];
        unit.age == age && unit.state == state
    }

    fn set(&mut self, unit: u32, state: UnitState) -> u32 {
        let unit = &mut self.places.units[unit as usize];
        unit.state = state;
        unit.noticed = false;
        unit.age += 1;
        unit.age
    }

    /// The replica is lost to its node; the NameNode hears of it `later`.
    fn gone(&mut self, unit: u32, later: f64) {
        let age = self.set(unit, UnitState::Gone);
        let block = self.places.units[unit as usize].block;
        if block != PARITY {
            self.touched.insert(block);
            self.after(later, ClusterEvent::Noticed { unit, age });
        }
    }

    fn disk_dies(&mut self, disk: usize) {
        let units = self.places.disks[disk].clone();
        for unit in units {
            let (state, node) = (
                self.places.units[unit as usize].state,
                self.places.units[unit as usize].node,
            );
            if matches!(state, UnitState::Gone | UnitState::Decoded) {
                continue;
            }
            let data = self.places.units[unit as usize].block != PARITY;
            let unprotected = data && self.random.share() < self.case.unprotected;
            if self.keeping.parity.is_none() || unprotected {
                self.gone(unit, self.case.detect);
                self.group_judged(unit);
                continue;
            }
            let age = self.set(unit, UnitState::Decoded);
            self.group_judged(unit);
            if self.is(unit, age, UnitState::Decoded) {
                self.rebuilding[node as usize].push_back((unit, age));
                if self.rebuilding[node as usize].len() == 1 {
                    self.next_rebuild(node);
                }
            }
        }
    }

    fn host_dies(&mut self, node: u32) {
        for disk in node * self.case.disks..(node + 1) * self.case.disks {
            for unit in self.places.disks[disk as usize].clone() {
                if self.places.units[unit as usize].state != UnitState::Gone {
                    self.gone(unit, self.case.detect);
                }
            }
        }
    }

    fn latent_error(&mut self, unit: u32) {
        if self.places.units[unit as usize].state != UnitState::Whole {
            return;
        }
        let age = self.set(unit, UnitState::Latent);
        // The scrub passes a unit once in each period.
        let years = self.random.share() * self.case.scrub;
        self.after(years, ClusterEvent::Scrubbed { unit, age });
        match self.keeping.parity {
            Some(_) => self.group_judged(unit),
            None => {
                let block = self.places.units[unit as usize].block;
                self.touched.extend((block != PARITY).then_some(block));
            }
        }
    }

    fn scrubbed(&mut self, unit: u32, age: u32) {
        if !self.is(unit, age, UnitState::Latent) {
            return;
        }
        match self.keeping.parity {
            Some(_) => {
                self.set(unit, UnitState::Whole);
            }
            None => self.gone(unit, 0.0),
        }
    }

    /// Gives up what the group of a unit cannot decode any more.
    fn group_judged(&mut self, unit: u32) {
        let Some(shape) = self.keeping.parity else {
            return;
        };
        let group = self.places.groups[self.places.units[unit as usize].group as usize].clone();
        let of = |state: UnitState| {
            let units = group
                .iter()
                .map(|unit| self.places.units[*unit as usize].state);
            units.filter(|found| *found == state).count()
        };
        let latent = of(UnitState::Latent);
        if of(UnitState::Decoded) + of(UnitState::Gone) + latent.min(1) <= shape.parity() {
            return;
        }
        for unit in group {
            let state = self.places.units[unit as usize].state;
            if matches!(state, UnitState::Decoded | UnitState::Latent) {
                self.gone(unit, self.case.detect);
            }
        }
    }

    fn next_rebuild(&mut self, node: u32) {
        while let Some(&(unit, age)) = self.rebuilding[node as usize].front() {
            if let (true, Some(shape)) =
                (self.is(unit, age, UnitState::Decoded), self.keeping.parity)
            {
                let years = self.case.block_bytes / self.case.rebuilt_a_year(shape);
                self.after(years, ClusterEvent::Rebuilt { node });
                return;
            }
            self.rebuilding[node as usize].pop_front();
        }
    }

    fn rebuilt(&mut self, node: u32) {
        if let Some((unit, age)) = self.rebuilding[node as usize].pop_front()
            && self.is(unit, age, UnitState::Decoded)
        {
            self.set(unit, UnitState::Whole);
        }
        self.next_rebuild(node);
    }

    /// Replicas of a block that can be read, as its nodes see them.
    fn live(&self, block: u32) -> Vec<u32> {
        let units = self.places.blocks[block as usize].iter().copied();
        units
            .filter(|unit| self.places.units[*unit as usize].state != UnitState::Gone)
            .collect()
    }

    /// The NameNode hears that a replica is gone. It copies first what has one replica left.
    fn wants_copy(&mut self, unit: u32) {
        self.places.units[unit as usize].noticed = true;
        let block = self.places.units[unit as usize].block;
        let known = |unit: &u32| self.places.units[*unit as usize].noticed;
        let missing: Vec<u32> = self.places.blocks[block as usize]
            .iter()
            .copied()
            .filter(known)
            .collect();
        if missing.len() + 1 < self.places.blocks[block as usize].len() {
            let age = self.places.units[unit as usize].age;
            self.usual.push_back((unit, age));
        } else {
            for unit in missing {
                let age = self.places.units[unit as usize].age;
                self.urgent.push_back((unit, age));
            }
        }
        if !self.copying {
            self.next_copy();
        }
    }

    fn next_copy(&mut self) {
        self.copying = false;
        while let Some((unit, age)) = self.urgent.pop_front().or_else(|| self.usual.pop_front()) {
            if self.is(unit, age, UnitState::Gone) {
                self.copying = true;
                let years = self.case.block_bytes / self.case.copied_a_year();
                self.after(years, ClusterEvent::Copied { unit, age });
                return;
            }
        }
    }

    fn copied(&mut self, unit: u32, age: u32) {
        if self.is(unit, age, UnitState::Gone) {
            let live = self.live(self.places.units[unit as usize].block);
            let source = live[self.random.below(live.len())];
            if self.keeping.parity.is_none()
                && self.places.units[source as usize].state == UnitState::Latent
            {
                // The copy finds the error. Both are to be copied from another replica.
                self.gone(source, 0.0);
                self.usual.push_back((unit, age));
            } else {
                self.set(unit, UnitState::Whole);
                self.encoded_anew(unit);
            }
        }
        self.next_copy();
    }

    /// Parity follows when all replicas of a group are there again.
    fn encoded_anew(&mut self, unit: u32) {
        let group = self.places.groups[self.places.units[unit as usize].group as usize].clone();
        let gone = |unit: &&u32| self.places.units[**unit as usize].state == UnitState::Gone;
        let missing: Vec<u32> = group.iter().filter(gone).copied().collect();
        let parity = |unit: &u32| self.places.units[*unit as usize].block == PARITY;
        if missing.iter().all(parity) {
            for unit in missing {
                self.set(unit, UnitState::Whole);
            }
        }
    }

    /// Counts the blocks that the event lost, and makes them whole again.
    fn judge(&mut self) {
        let before = self.lost.blocks;
        for block in std::mem::take(&mut self.touched) {
            let live = self.live(block);
            let latent = |unit: &u32| self.places.units[*unit as usize].state == UnitState::Latent;
            // Several replicas with latent errors make up for each other.
            let bad = live.len() == 1 && live.iter().all(latent) && self.keeping.parity.is_none();
            if !live.is_empty() && !bad {
                continue;
            }
            self.lost.blocks += 1;
            for unit in self.places.blocks[block as usize].clone() {
                self.set(unit, UnitState::Whole);
                self.encoded_anew(unit);
            }
        }
        self.lost.events += u64::from(self.lost.blocks > before);
    }
}
