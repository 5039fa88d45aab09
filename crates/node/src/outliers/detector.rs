//! Which of several like things is far slower than the others.
//!
//! Apache's rule: an outlier is above three limits. They are a low threshold, three times the
//! median, and the median plus three scaled median absolute deviations. The paper is by Leys and
//! others, "Detecting outliers: do not use standard deviation around the mean",
//! doi:10.1016/j.jesp.2013.03.013.

/// Makes the median absolute deviation of normally distributed values their standard deviation.
const MAD_SCALE: f64 = 1.4826;
/// Deviations above the median that are still usual.
const DEVIATIONS: f64 = 3.0;
/// Below this many medians nothing is an outlier: values that lie close together have a small
/// deviation.
const MEDIANS: f64 = 3.0;

/// What is usual among some latencies, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usual {
    /// The median.
    pub median: f64,
    /// The median absolute deviation, scaled.
    pub mad: f64,
    /// A latency above this is an outlier.
    pub limit: f64,
}

/// What is usual among `latencies`, milliseconds; `None` when there are fewer than `least`, or
/// none. Nothing up to `low` milliseconds is an outlier.
#[must_use]
pub fn usual(latencies: impl Iterator<Item = f64>, least: u64, low: f64) -> Option<Usual> {
    let mut values: Vec<f64> = latencies.collect();
    let enough = u64::try_from(values.len()).unwrap_or(u64::MAX) >= least;
    if values.is_empty() || !enough {
        return None;
    }
    let median = median(&mut values);
    let mut deviations: Vec<f64> = values.iter().map(|v| (v - median).abs()).collect();
    let mad = self::median(&mut deviations) * MAD_SCALE;
    let limit = low.max(MEDIANS * median).max(median + DEVIATIONS * mad);
    Some(Usual { median, mad, limit })
}

/// The median of one value or more; sorts them.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[f64], least: u64, low: f64) -> Option<Usual> {
        usual(values.iter().copied(), least, low)
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn the_limit_is_the_largest_of_three() {
        // Close together: three medians.
        let u = of(&[10.0, 11.0, 10.0, 9.0, 90.0], 5, 5.0).expect("enough");
        assert!(near(u.median, 10.0) && near(u.mad, 1.4826) && near(u.limit, 30.0));
        // Far apart: deviations.
        let u = of(&[1.0, 5.0, 10.0, 30.0, 60.0], 5, 5.0).expect("enough");
        assert!(near(u.mad, 9.0 * 1.4826) && near(u.limit, 10.0 + 27.0 * 1.4826));
        // All fast: the low threshold.
        let u = of(&[0.0, 0.1, 0.2, 4.0], 4, 5.0).expect("enough");
        assert!(near(u.median, 0.15) && near(u.limit, 5.0));
    }

    #[test]
    fn too_few_say_nothing() {
        assert_eq!(of(&[1.0, 1000.0], 3, 5.0), None);
        assert_eq!(of(&[], 0, 5.0), None);
    }

    proptest! {
        #[test]
        fn most_are_never_outliers(
            values in prop::collection::vec(0.0..1e6, 1..60),
            low in 0.0..100.0,
        ) {
            let usual = of(&values, 1, low).expect("enough");
            let slow = values.iter().filter(|v| **v > usual.limit).count();
            prop_assert!(slow * 2 <= values.len(), "{} of {}", slow, values.len());
            prop_assert!(usual.limit >= low && usual.limit >= usual.median);
        }

        #[test]
        fn one_that_is_far_off_is_found(
            values in prop::collection::vec(5.0..10.0, 4..40),
            far in 1e4..1e6,
            at in any::<prop::sample::Index>(),
        ) {
            let mut values = values;
            let at = at.index(values.len());
            values[at] = far;
            let usual = of(&values, 5.min(values.len() as u64), 1.0).expect("enough");
            prop_assert!(far > usual.limit);
            prop_assert!(values.iter().enumerate().all(|(i, v)| i == at || *v <= usual.limit));
        }

        #[test]
        fn the_order_does_not_matter(values in prop::collection::vec(0.0..1e6, 1..30)) {
            let mut turned = values.clone();
            turned.reverse();
            prop_assert_eq!(of(&values, 1, 1.0), of(&turned, 1, 1.0));
        }
    }
}
