//! Matrices that reconstruct, remembered: the pieces of a unit all need the same one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::CoderError;
use crate::matrix::Matrix;
use crate::tables::Tables;

/// Most matrices remembered.
const MOST_PLANS: usize = 64;
/// Most bytes of matrices remembered.
const MOST_MEMORY: usize = 1 << 20;

/// From which units, and which ones.
#[derive(Debug, PartialEq, Eq)]
struct Key {
    sources: Vec<usize>,
    wanted: Vec<usize>,
}

/// The plans used last, the newest at the back.
#[derive(Debug, Default)]
pub(crate) struct Plans {
    remembered: Mutex<VecDeque<(Key, Arc<Tables>)>>,
}

impl Plans {
    /// The matrix that makes `wanted` of `sources`: as many as there are data units, each once.
    pub(crate) fn get(
        &self,
        generator: &Matrix,
        sources: &[usize],
        wanted: &[usize],
    ) -> Result<Arc<Tables>, CoderError> {
        if let Some(known) = self.recall(sources, wanted) {
            return Ok(known);
        }
        // Made without the lock: two threads may make the same, which only costs the time.
        let to_data =
            generator
                .rows_of(sources)
                .inverse()
                .ok_or_else(|| CoderError::Undetermined {
                    sources: sources.to_vec(),
                })?;
        let plan = Arc::new(Tables::new(&generator.rows_of(wanted).times(&to_data)));
        let key = Key {
            sources: sources.to_vec(),
            wanted: wanted.to_vec(),
        };
        self.remember(key, Arc::clone(&plan));
        Ok(plan)
    }

    fn recall(&self, sources: &[usize], wanted: &[usize]) -> Option<Arc<Tables>> {
        let mut remembered = self
            .remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let at = remembered
            .iter()
            .rposition(|(key, _)| key.sources == sources && key.wanted == wanted)?;
        let entry = remembered.remove(at)?;
        let plan = Arc::clone(&entry.1);
        remembered.push_back(entry);
        Some(plan)
    }

    fn remember(&self, key: Key, plan: Arc<Tables>) {
        let mut remembered = self
            .remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if remembered.iter().any(|(known, _)| *known == key) {
            return;
        }
        remembered.push_back((key, plan));
        let mut memory: usize = remembered.iter().map(|(_, plan)| plan.memory()).sum();
        while remembered.len() > MOST_PLANS || memory > MOST_MEMORY {
            let Some((_, oldest)) = remembered.pop_front() else {
                break;
            };
            memory -= oldest.memory();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix;

    fn count(plans: &Plans) -> usize {
        plans
            .remembered
            .lock()
            .expect("no test panics with it")
            .len()
    }

    #[test]
    fn a_plan_is_made_once() {
        let generator = matrix::cauchy(6, 3);
        let plans = Plans::default();
        let first = plans
            .get(&generator, &[1, 2, 3, 4, 5, 6], &[0])
            .expect("decodable");
        let second = plans
            .get(&generator, &[1, 2, 3, 4, 5, 6], &[0])
            .expect("decodable");
        assert!(Arc::ptr_eq(&first, &second));
        plans
            .get(&generator, &[1, 2, 3, 4, 5, 7], &[0])
            .expect("decodable");
        assert_eq!(count(&plans), 2);
    }

    #[test]
    fn memory_has_a_limit_and_the_oldest_go() {
        let generator = matrix::cauchy(2, 100);
        let plans = Plans::default();
        let kept = plans.get(&generator, &[0, 1], &[2]).expect("decodable");
        for unit in 3..MOST_PLANS + 3 {
            // The first is used between, so another one is the oldest.
            plans.get(&generator, &[0, 1], &[2]).expect("decodable");
            plans.get(&generator, &[0, 1], &[unit]).expect("decodable");
        }
        assert_eq!(count(&plans), MOST_PLANS);
        assert!(Arc::ptr_eq(
            &kept,
            &plans.get(&generator, &[0, 1], &[2]).expect("decodable")
        ));

        // 128 by 127 elements of 32 bytes are half of the limit, so one of them stays.
        let large = matrix::cauchy(128, 127);
        let plans = Plans::default();
        let wanted: Vec<usize> = (128..255).collect();
        let sources: Vec<usize> = (0..128).collect();
        for turn in 0..4 {
            let mut sources = sources.clone();
            sources.rotate_left(turn);
            plans.get(&large, &sources, &wanted).expect("decodable");
        }
        assert_eq!(count(&plans), MOST_MEMORY / (128 * 127 * 32));
    }
}
