//! Which volume a new replica goes to. Pure: numbers in, index out.

use crate::config::VolumeChoosing;

/// A volume that may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Bytes free for blocks.
    pub remaining: u64,
    /// The caller named this volume.
    pub preferred: bool,
    /// Taken only when no other has room.
    pub avoid: bool,
}

/// Where the round of each kind of candidates stands.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    all: usize,
    emptier: usize,
    fuller: usize,
}

/// Chooses among `candidates` for a block of `bytes`. `dice` is a random number from 0.0 to 1.0.
/// `None` when no candidate has room.
///
/// A preferred volume is taken when it has room.
pub fn choose(
    policy: VolumeChoosing,
    candidates: &[Candidate],
    bytes: u64,
    rounds: &mut Rounds,
    dice: f32,
) -> Option<usize> {
    let additional = match policy {
        VolumeChoosing::RoundRobin { additional }
        | VolumeChoosing::AvailableSpace { additional, .. } => additional,
    };
    // Room beyond the block first; a volume that is just large enough, or to be avoided, rather
    // than failing the write.
    let ample = bytes.saturating_add(additional);
    [(ample, false), (bytes, false), (ample, true), (bytes, true)]
        .into_iter()
        .find_map(|(needed, any)| choose_with_room(policy, candidates, needed, any, rounds, dice))
}

fn choose_with_room(
    policy: VolumeChoosing,
    candidates: &[Candidate],
    needed: u64,
    any: bool,
    rounds: &mut Rounds,
    dice: f32,
) -> Option<usize> {
    let fits: Vec<usize> = (0..candidates.len())
        .filter(|i| candidates[*i].remaining >= needed && (any || !candidates[*i].avoid))
        .collect();
    if let Some(preferred) = fits.iter().find(|i| candidates[**i].preferred) {
        return Some(*preferred);
    }
    let VolumeChoosing::AvailableSpace {
        threshold,
        fraction,
        ..
    } = policy
    else {
        return next(&mut rounds.all, &fits);
    };
    let least = fits.iter().map(|i| candidates[*i].remaining).min()?;
    let most = fits.iter().map(|i| candidates[*i].remaining).max()?;
    if most - least <= threshold {
        return next(&mut rounds.all, &fits);
    }
    let (fuller, emptier): (Vec<usize>, Vec<usize>) = fits
        .into_iter()
        .partition(|i| candidates[*i].remaining <= least.saturating_add(threshold));
    if dice < fraction {
        next(&mut rounds.emptier, &emptier)
    } else {
        next(&mut rounds.fuller, &fuller)
    }
}

fn next(round: &mut usize, among: &[usize]) -> Option<usize> {
    if among.is_empty() {
        return None;
    }
    let chosen = among[*round % among.len()];
    *round = round.wrapping_add(1);
    Some(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROUND_ROBIN: VolumeChoosing = VolumeChoosing::RoundRobin { additional: 0 };

    fn free(remaining: &[u64]) -> Vec<Candidate> {
        remaining
            .iter()
            .map(|r| Candidate {
                remaining: *r,
                preferred: false,
                avoid: false,
            })
            .collect()
    }

    #[test]
    fn round_robin_leaves_out_full_volumes() {
        let volumes = free(&[100, 5, 100]);
        let mut rounds = Rounds::default();
        let picks: Vec<_> = (0..4)
            .map(|_| choose(ROUND_ROBIN, &volumes, 10, &mut rounds, 0.0))
            .collect();
        assert_eq!(picks, [Some(0), Some(2), Some(0), Some(2)]);
        assert_eq!(choose(ROUND_ROBIN, &volumes, 101, &mut rounds, 0.0), None);
        assert_eq!(choose(ROUND_ROBIN, &[], 0, &mut rounds, 0.0), None);
    }

    #[test]
    fn a_volume_that_is_just_large_enough_is_better_than_none() {
        let policy = VolumeChoosing::RoundRobin { additional: 1000 };
        assert_eq!(
            choose(policy, &free(&[50, 20]), 30, &mut Rounds::default(), 0.0),
            Some(0)
        );
    }

    #[test]
    fn the_preferred_volume_is_taken_when_it_has_room() {
        let mut volumes = free(&[100, 50]);
        volumes[1].preferred = true;
        assert_eq!(
            choose(ROUND_ROBIN, &volumes, 50, &mut Rounds::default(), 0.0),
            Some(1)
        );
        assert_eq!(
            choose(ROUND_ROBIN, &volumes, 51, &mut Rounds::default(), 0.0),
            Some(0)
        );
    }

    #[test]
    fn volumes_to_avoid_are_taken_when_no_other_has_room() {
        let mut volumes = free(&[100, 100, 50]);
        (volumes[0].avoid, volumes[1].avoid) = (true, true);
        let mut rounds = Rounds::default();
        let mut pick = |bytes| choose(ROUND_ROBIN, &volumes, bytes, &mut rounds, 0.0);
        assert_eq!((pick(50), pick(50)), (Some(2), Some(2)));
        assert!(pick(51).is_some_and(|i| i < 2));
        assert_eq!(pick(101), None);
    }

    #[test]
    fn available_space_favours_the_emptier() {
        let policy = VolumeChoosing::AvailableSpace {
            threshold: 10,
            fraction: 0.75,
            additional: 0,
        };
        let volumes = free(&[100, 105, 500]);
        let mut rounds = Rounds::default();
        assert_eq!(choose(policy, &volumes, 1, &mut rounds, 0.5), Some(2));
        assert_eq!(choose(policy, &volumes, 1, &mut rounds, 0.8), Some(0));
        assert_eq!(choose(policy, &volumes, 1, &mut rounds, 0.8), Some(1));
        let balanced = free(&[100, 105]);
        assert!(choose(policy, &balanced, 1, &mut rounds, 0.5).is_some());
    }

    proptest! {
        #[test]
        fn a_volume_that_is_chosen_has_room(
            remaining in proptest::collection::vec(0..1000_u64, 0..6),
            bytes in 0..1000_u64,
            dice in 0.0..1.0_f32,
            spread: bool, start: usize,
        ) {
            let policy = if spread {
                VolumeChoosing::AvailableSpace { threshold: 100, fraction: 0.75, additional: 50 }
            } else {
                VolumeChoosing::RoundRobin { additional: 50 }
            };
            let mut rounds = Rounds { all: start, emptier: start, fuller: start };
            let chosen = choose(policy, &free(&remaining), bytes, &mut rounds, dice);
            let any = remaining.iter().any(|r| *r >= bytes);
            prop_assert_eq!(chosen.is_some(), any);
            prop_assert!(chosen.is_none_or(|i| remaining[i] >= bytes));
        }
    }
}
