//! Chance, with a seed.

/// A generator: xoshiro256++ of Blackman and Vigna, seeded by SplitMix64.
#[derive(Clone, Debug)]
pub struct SeededRandom([u64; 4]);

impl SeededRandom {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        let mut word = || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        };
        Self([word(), word(), word(), word()])
    }

    fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number from 0 to below 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits")]
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A waiting time with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(-self.share()).ln_1p()
    }

    /// A number below `end`, which is not 0.
    #[expect(clippy::cast_possible_truncation, reason = "less than a usize")]
    pub fn below(&mut self, end: usize) -> usize {
        let wide = u128::from(self.next()) * end as u128;
        (wide >> 64) as usize
    }

    /// A whole number whose mean is `mean`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small positive number"
    )]
    pub fn rounded(&mut self, mean: f64) -> u32 {
        (mean + self.share()).floor() as u32
    }

    /// Puts a list in any order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.below(at + 1));
        }
    }

    /// So many different numbers below `end`.
    pub fn several(&mut self, end: u32, count: usize) -> Vec<u32> {
        let mut all: Vec<u32> = (0..end).collect();
        self.shuffle(&mut all);
        all.truncate(count);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_means_are_right() {
        let (mut one, mut two) = (SeededRandom::new(7), SeededRandom::new(7));
        let times: Vec<f64> = (0..20_000).map(|_| one.exponential()).collect();
        assert!(times.iter().all(|time| *time == two.exponential()));
        let mean = times.iter().sum::<f64>() / 20_000.0;
        assert!((0.97..1.03).contains(&mean), "{mean}");
        assert!((0..1000).all(|_| one.below(3) < 3 && one.share() < 1.0));
        let mut several = one.several(9, 4);
        several.sort_unstable();
        several.dedup();
        assert_eq!(several.len(), 4);
    }
}
