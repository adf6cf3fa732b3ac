//! Median and extremes of repeated measurements.

/// The values of repeated measurements. The median represents them; minimum and maximum show its reliability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The minimum.
    pub min: f64,
    /// The median; of an even number of values, the mean of the two in the middle.
    pub median: f64,
    /// The maximum.
    pub max: f64,
}

impl Spread {
    /// The spread of the values; None without values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Spread { min, median: f64::midpoint(low, high), max })
    }

    /// The spread of the ratios of values that were measured one after the other, in rounds.
    pub fn of_ratios(
        values: impl IntoIterator<Item = Option<f64>>,
        to: impl IntoIterator<Item = Option<f64>>,
    ) -> Option<Spread> {
        Spread::of(std::iter::zip(values, to).filter_map(|(value, to)| Some(value? / to?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_of_the_order_not_of_the_range() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied());
        assert_eq!(spread(&[9.0, 1.0, 2.0]), Some(Spread { min: 1.0, median: 2.0, max: 9.0 }));
        assert_eq!(spread(&[4.0, 1.0, 100.0, 2.0]), Some(Spread { min: 1.0, median: 3.0, max: 100.0 }));
        assert_eq!(spread(&[7.5]), Some(Spread { min: 7.5, median: 7.5, max: 7.5 }));
        assert_eq!(spread(&[]), None);
    }
}
