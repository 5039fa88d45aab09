//! A value over several rounds.

/// Median, lowest and highest of the rounds that count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Lowest.
    pub low: f64,
    /// Median: of an even count the mean of the two in the middle.
    pub median: f64,
    /// Highest.
    pub high: f64,
    /// How many rounds there are.
    pub rounds: usize,
}

impl Spread {
    /// `None` without values.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = match values.len() {
            0 => return None,
            count if count % 2 == 1 => values[middle],
            _ => f64::midpoint(values[middle - 1], values[middle]),
        };
        Some(Self {
            low: *values.first()?,
            median,
            high: *values.last()?,
            rounds: values.len(),
        })
    }

    /// The median of values; 0 without any.
    #[must_use]
    pub fn median(values: Vec<f64>) -> f64 {
        Self::of(values).unwrap_or_default().median
    }

    /// Whether some round of one may be as good as some round of the other. A single round has no
    /// range, so it tells nothing apart.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let single = self.rounds < 2 || other.rounds < 2;
        single || (self.low <= other.high && other.low <= self.high)
    }

    /// The median alone, with the digits that matter; thousands as `12.3k`.
    #[must_use]
    pub fn median_text(self) -> String {
        self.number(self.median)
    }

    /// A value as exact as the median is told.
    fn number(self, value: f64) -> String {
        match self.median {
            m if m >= 100_000.0 => format!("{:.0}k", value / 1000.0),
            m if m >= 10_000.0 => format!("{:.1}k", value / 1000.0),
            m if m >= 100.0 => format!("{value:.0}"),
            m if m >= 10.0 => format!("{value:.1}"),
            _ => format!("{value:.2}"),
        }
    }

    /// `562 (502-631)`; a single value without its spread.
    #[must_use]
    pub fn text(self) -> String {
        let median = self.median_text();
        if (self.high - self.low).abs() < f64::EPSILON {
            return median;
        }
        let (low, high) = (self.number(self.low), self.number(self.high));
        format!("{median} ({low}-{high})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_even_and_odd() {
        let median = |values: &[f64]| Spread::of(values.to_vec()).expect("values").median;
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert_eq!(Spread::of(vec![f64::NAN]), None);
        assert!(Spread::median(Vec::new()).abs() < 1e-9);
    }

    #[test]
    fn texts_have_the_digits_that_matter() {
        let spread = |values: &[f64]| Spread::of(values.to_vec()).expect("values").text();
        assert_eq!(spread(&[500.4, 562.2, 630.9]), "562 (500-631)");
        assert_eq!(spread(&[0.254]), "0.25");
        assert_eq!(
            spread(&[9490.0, 10_121.0, 405_100.0]),
            "10.1k (9.5k-405.1k)"
        );
    }

    #[test]
    fn ranges_overlap_when_they_touch_or_are_unknown() {
        let of = |values: &[f64]| Spread::of(values.to_vec()).expect("values");
        assert!(!of(&[1.0, 2.0]).overlaps(&of(&[2.1, 3.0])));
        assert!(of(&[1.0, 2.1]).overlaps(&of(&[2.1, 3.0])));
        assert!(of(&[2.1, 3.0]).overlaps(&of(&[1.0, 9.0])));
        assert!(of(&[1.0]).overlaps(&of(&[2.0, 3.0])), "one round");
    }
}
