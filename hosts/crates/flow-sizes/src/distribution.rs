// SPDX-License-Identifier: Apache-2.0
//! Flow-size distributions as quantile functions.
//!
//! A distribution is a list of knots (cumulative probability, size), of one of two kinds. Of a *curve* the logarithm
//! of the size is linear in the probability between two knots. That follows a heavy tail over seven decades with a
//! dozen knots, and its mean is known in closed form: a segment of probability width w from size a to size b
//! contributes w * (b - a) / ln(b / a). *Steps* are what was counted: the size of a knot is that of all flows between
//! the knot before and this one, and no other size is ever drawn.
//!
//! The built-in `published` distribution has the figures published for the flows of a Pacific-island provider:
//! more than 100,000 flows, median below 500 B, mean about 50 kB, the largest 0.8 to 1 GB, 99.989 % of the flows
//! under 40 MB. It was fitted by hand: the knots at 0.5, 0.99989 and 1 are the published ones; the three between
//! them and the end continue as the eleven largest of 100,000 flows would (size falling as rank^-1.3); the body
//! rises smoothly from single-packet flows; and the size at 0.99, the one knot left free, was solved for the mean.
//! The mean of the result is 50.0 kB, 45 % of it from the largest 0.011 % of the flows.
//!
//! Distributions read from files come as knots, from the program that read the file; [`Distribution::curve`] and
//! [`Distribution::steps`] are the places where knots are checked.

use serde::Deserialize;

/// Knots give probabilities as integers in this unit, one in 10^9, so that drawing is exact.
const ONE: u64 = 1_000_000_000;

/// The largest size a distribution may hold: sizes stay exact in an `f64`.
const SIZE_MAX_BYTES: u64 = 1 << 53;

/// A point of a quantile function; in a configuration a list of both numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Knot {
    /// Share of flows no larger than `size_bytes`, in units of 10^-9.
    pub probability_e9: u64,
    /// Flow size.
    pub size_bytes: u64,
}

const fn knot(probability_e9: u64, size_bytes: u64) -> Knot {
    Knot {
        probability_e9,
        size_bytes,
    }
}

/// The `published` distribution; see the top of this module.
const PUBLISHED: [Knot; 12] = [
    knot(0, 40),
    knot(250_000_000, 120),
    knot(500_000_000, 400),
    knot(750_000_000, 2_500),
    knot(900_000_000, 12_000),
    knot(950_000_000, 40_000),
    knot(990_000_000, 175_000),
    knot(999_000_000, 3_000_000),
    knot(999_890_000, 40_000_000),
    knot(999_950_000, 110_000_000),
    knot(999_980_000, 360_000_000),
    knot(1_000_000_000, 900_000_000),
];

const SPAN: &str = "curve: the first point must have probability 0, the last one probability 1";
const STEPS: &str =
    "steps: the first point must have a probability above 0, the last one probability 1";

/// The interpolation between two knots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Curve,
    Steps,
}

/// A distribution in a configuration.
#[derive(Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "expected the name of a distribution, or {kind: curve|steps, knots: [[10^-9, bytes], ..]}"
)]
enum Description {
    Name(String),
    Knots { kind: Kind, knots: Vec<Knot> },
}

/// A flow-size distribution, valid by construction.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Description")]
pub struct Distribution {
    kind: Kind,
    knots: Vec<Knot>,
}

impl Distribution {
    /// The distribution whose quantile function is the curve through `knots`.
    ///
    /// # Errors
    /// If they do not span probabilities 0 to 1 in increasing order with non-decreasing sizes of at least 1 byte.
    pub fn curve(knots: Vec<Knot>) -> Result<Self, String> {
        match probability_span(&knots) {
            Some((0, ONE)) => Self::ordered(Kind::Curve, knots),
            _ => Err(SPAN.to_owned()),
        }
    }

    /// The distribution of the sizes of `knots` alone, each with the probability from the knot before (or 0) to its own.
    ///
    /// # Errors
    /// If the probabilities do not increase from above 0 to 1, or sizes decrease or are below 1 byte.
    pub fn steps(knots: Vec<Knot>) -> Result<Self, String> {
        match probability_span(&knots) {
            Some((1.., ONE)) => Self::ordered(Kind::Steps, knots),
            _ => Err(STEPS.to_owned()),
        }
    }

    fn ordered(kind: Kind, knots: Vec<Knot>) -> Result<Self, String> {
        let mut smallest = 1;
        for (index, knot) in knots.iter().enumerate() {
            if index > 0 && knot.probability_e9 <= knots[index - 1].probability_e9 {
                return Err(format!(
                    "point {index}: its probability is not above that of the point before"
                ));
            }
            if !(smallest..=SIZE_MAX_BYTES).contains(&knot.size_bytes) {
                return Err(format!(
                    "point {index}: its size is below that of the point before, zero, or above 2^53 bytes"
                ));
            }
            smallest = knot.size_bytes;
        }
        Ok(Self { kind, knots })
    }

    /// The built-in heavy-tailed distribution with the published figures.
    #[must_use]
    pub fn published() -> Self {
        Self {
            kind: Kind::Curve,
            knots: PUBLISHED.to_vec(),
        }
    }

    /// The size at probability `uniform` / 2^64, rounded down.
    #[must_use]
    pub fn quantile(&self, uniform: u64) -> u64 {
        let probability = u128::from(uniform) * u128::from(ONE); // in units of 10^-9, 64 bits of fraction
        let probability_e9 = (probability >> 64) as u64;
        let next = self
            .knots
            .partition_point(|knot| knot.probability_e9 <= probability_e9);
        if self.kind == Kind::Steps {
            return self.knots[next].size_bytes;
        }
        let (low, high) = (self.knots[next - 1], self.knots[next]);
        let width = u128::from(high.probability_e9 - low.probability_e9);
        let fraction = ((probability - (u128::from(low.probability_e9) << 64)) / width) as u64;
        interpolate(low.size_bytes, high.size_bytes, fraction)
    }
}

impl TryFrom<Description> for Distribution {
    type Error = String;

    fn try_from(description: Description) -> Result<Self, String> {
        match description {
            Description::Name(name) if name == "published" => Ok(Self::published()),
            Description::Name(name) => Err(format!(
                "unknown flow-size distribution '{name}'; known: published"
            )),
            Description::Knots { kind, knots } => match kind {
                Kind::Curve => Self::curve(knots),
                Kind::Steps => Self::steps(knots),
            },
        }
    }
}

/// The probabilities of the first and of the last knot.
fn probability_span(knots: &[Knot]) -> Option<(u64, u64)> {
    let (first, last) = (knots.first()?, knots.last()?);
    Some((first.probability_e9, last.probability_e9))
}

/// `low * (high / low) ^ (fraction / 2^64)`, rounded down and never below `low`.
///
/// The power is a product of repeated square roots, one for each of the fraction's 32 leading bits: IEEE 754
/// rounds square root and product correctly, where `pow` differs from one C library to the next.
fn interpolate(low: u64, high: u64, fraction: u64) -> u64 {
    let mut root = high as f64 / low as f64;
    let mut size = low as f64;
    for bit in (32..64).rev() {
        root = root.sqrt();
        if (fraction >> bit) & 1 == 1 {
            size *= root;
        }
    }
    #[expect(clippy::cast_sign_loss, reason = "sizes are positive and at most 2^53")]
    let size = size as u64;
    size.clamp(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PER_ONE: f64 = 18_446_744_073_709_551_616.0;

    /// The mean flow size in bytes, in closed form.
    fn mean_bytes(sizes: &Distribution) -> f64 {
        if sizes.kind == Kind::Steps {
            let mut below = 0;
            return sizes
                .knots
                .iter()
                .map(|knot| {
                    let width =
                        knot.probability_e9 - std::mem::replace(&mut below, knot.probability_e9);
                    width as f64 / ONE as f64 * knot.size_bytes as f64
                })
                .sum();
        }
        sizes
            .knots
            .windows(2)
            .map(|pair| {
                let width = (pair[1].probability_e9 - pair[0].probability_e9) as f64 / ONE as f64;
                let (low, high) = (pair[0].size_bytes as f64, pair[1].size_bytes as f64);
                width
                    * if high > low {
                        (high - low) / (high / low).ln()
                    } else {
                        low
                    }
            })
            .sum()
    }

    /// The share of flows no larger than `size`, by bisection of the quantile function.
    fn share_up_to(distribution: &Distribution, size: u64) -> f64 {
        let (mut low, mut high) = (0_u64, u64::MAX);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if distribution.quantile(middle) < size {
                low = middle;
            } else {
                high = middle;
            }
        }
        low as f64 / PER_ONE
    }

    #[test]
    fn published_knots_are_valid() {
        assert_eq!(
            Distribution::curve(PUBLISHED.to_vec()),
            Ok(Distribution::published())
        );
    }

    #[test]
    fn published_figures_hold_analytically() {
        let sizes = Distribution::published();
        assert!(sizes.quantile(1 << 63) < 500, "median");
        assert!(
            (mean_bytes(&sizes) - 50_000.0).abs() < 100.0,
            "mean {}",
            mean_bytes(&sizes)
        );
        assert!(
            (800_000_000..=1_000_000_000).contains(&sizes.quantile(u64::MAX)),
            "largest"
        );
        assert!(
            (share_up_to(&sizes, 40_000_000) - 0.999_89).abs() < 1e-6,
            "share under 40 MB"
        );
        assert_eq!(sizes.quantile(0), 40);
    }

    #[test]
    fn published_figures_hold_for_a_sample() {
        let sizes = Distribution::published();
        let mut drawn: Vec<u64> = (0..400_000)
            .map(|flow| crate::draw(&sizes, 3, 0, flow, 1).size_bytes)
            .collect();
        drawn.sort_unstable();
        let mean = drawn.iter().sum::<u64>() as f64 / drawn.len() as f64;
        let under_40_mb =
            drawn.partition_point(|&size| size < 40_000_000) as f64 / drawn.len() as f64;
        assert!(
            (380..420).contains(&drawn[drawn.len() / 2]),
            "median {}",
            drawn[drawn.len() / 2]
        );
        // The standard deviation of one size is 3.3 MB, of this mean 5.2 kB.
        assert!((mean - 50_000.0).abs() < 12_000.0, "mean {mean}");
        // 44 flows in 400,000 are expected above 40 MB, with a standard deviation of 6.6.
        assert!((under_40_mb - 0.999_89).abs() < 5e-5, "{under_40_mb}");
    }

    #[test]
    fn quantiles_of_the_published_distribution_never_change() {
        let sizes = Distribution::published();
        let parts_per_million = [100_000, 600_000, 960_000, 999_900, 999_999];
        let found = parts_per_million.map(|part| sizes.quantile(u64::MAX / 1_000_000 * part));
        assert_eq!(found, [62, 832, 57_850, 47_345_870, 859_697_192]);
    }

    #[test]
    fn closed_mean_agrees_with_numeric_integration() {
        let sizes = Distribution::published();
        let steps = 1_000_000_u64;
        let total: f64 = (0..steps)
            .map(|step| sizes.quantile(u64::MAX / steps * step + u64::MAX / steps / 2) as f64)
            .sum();
        let numeric = total / steps as f64;
        assert!(
            (numeric / mean_bytes(&sizes) - 1.0).abs() < 1e-3,
            "{numeric} {}",
            mean_bytes(&sizes)
        );
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        assert_eq!(Distribution::curve(vec![]), Err(SPAN.to_owned()));
        assert_eq!(
            Distribution::curve(vec![knot(0, 1), knot(5, 2)]),
            Err(SPAN.to_owned())
        );
        let back = vec![knot(0, 1), knot(9, 2), knot(9, 3), knot(ONE, 4)];
        let smaller = vec![knot(0, 9), knot(ONE, 8)];
        let zero = vec![knot(0, 0), knot(ONE, 8)];
        for (knots, words) in [
            (back, "point 2: its probability"),
            (smaller, "point 1: its size"),
            (zero, "point 0: its size"),
        ] {
            let error = Distribution::curve(knots).unwrap_err();
            assert!(error.starts_with(words), "{error}");
        }
        let error = Distribution::try_from(Description::Name("puplished".into())).unwrap_err();
        assert!(error.contains("'puplished'; known: published"), "{error}");
    }

    #[test]
    fn names_and_knots_are_distributions_and_anything_else_is_refused() {
        let read = |text: &str| serde_json::from_str::<Distribution>(text);
        assert_eq!(read("\"published\"").unwrap(), Distribution::published());
        let fixed = read(r#"{"kind":"steps","knots":[[1000000000,10000]]}"#).unwrap();
        assert_eq!(fixed.quantile(77), 10_000);
        let curve = read(r#"{"kind":"curve","knots":[[0,100],[1000000000,10000]]}"#).unwrap();
        assert_eq!(curve.quantile(1 << 63), 1000);
        let error = read(r#"{"kind":"curve","knots":[[5,100]]}"#).unwrap_err();
        assert!(error.to_string().starts_with("curve: the first point"));
        let error = read("7").unwrap_err().to_string();
        assert!(error.starts_with("expected the name"), "{error}");
        assert!(read(r#"{"kind":"curve","knots":[[5,-1]]}"#).is_err());
        assert!(read(r#"{"kind":"steps","knots":[[1000000000,1]],"surprise":1}"#).is_err());
    }

    #[test]
    fn steps_draw_the_sizes_they_are_made_of_and_nothing_else() {
        let steps = Distribution::steps(vec![
            knot(250_000_000, 100),
            knot(750_000_000, 1000),
            knot(ONE, 7),
        ]);
        assert!(steps.unwrap_err().starts_with("point 2: its size"));
        let steps = Distribution::steps(vec![
            knot(250_000_000, 100),
            knot(750_000_000, 1000),
            knot(ONE, 7000),
        ])
        .unwrap();
        let found = [0, (1 << 62) - 1, 1 << 62, (3 << 62) - 1, 3 << 62, u64::MAX]
            .map(|uniform| steps.quantile(uniform));
        assert_eq!(found, [100, 100, 1000, 1000, 7000, 7000]);
        assert!((mean_bytes(&steps) - 2275.0).abs() < 1e-9);
        let fixed = Distribution::steps(vec![knot(ONE, 10_000)]).unwrap();
        assert_eq!(
            (fixed.quantile(0), fixed.quantile(u64::MAX)),
            (10_000, 10_000)
        );
        for bad in [vec![], vec![knot(0, 5), knot(ONE, 6)], vec![knot(7, 5)]] {
            assert_eq!(Distribution::steps(bad), Err(STEPS.to_owned()));
        }
    }

    /// Kolmogorov and Smirnov's distance of a million draws from the distribution they are drawn from stays below the
    /// bound that one sample in a thousand exceeds, 1.95 / sqrt(n); for steps it is the more conservative.
    #[test]
    fn a_sample_agrees_with_its_distribution_by_kolmogorov_and_smirnov() {
        let steps = [100, 100, 400, 1500, 1500, 1500, 40_000, 2_000_000]
            .into_iter()
            .zip(1..)
            .map(|(size_bytes, eighths)| knot(eighths * 125_000_000, size_bytes))
            .collect();
        for sizes in [
            Distribution::published(),
            Distribution::steps(steps).unwrap(),
        ] {
            let count = 1_000_000_u64;
            let mut drawn: Vec<u64> = (0..count)
                .map(|flow| crate::draw(&sizes, 11, flow % 100, flow / 100, 6).size_bytes)
                .collect();
            drawn.sort_unstable();
            let distance = (1..200)
                .map(|part| sizes.quantile(u64::MAX / 200 * part))
                .map(|size| {
                    let found = drawn.partition_point(|&other| other < size) as f64 / count as f64;
                    (found - share_up_to(&sizes, size)).abs()
                })
                .fold(0.0, f64::max);
            assert!(distance < 1.95 / (count as f64).sqrt(), "{distance}");
        }
    }

    proptest! {
        #[test]
        fn quantiles_never_decrease(a: u64, b: u64) {
            let sizes = Distribution::published();
            prop_assert!(sizes.quantile(a.min(b)) <= sizes.quantile(a.max(b)));
        }

        #[test]
        fn interpolation_agrees_with_powers(low in 1..1_000_000_u64, ratio in 1..1_000_u64, fraction: u64) {
            let expected = low as f64 * (ratio as f64).powf(fraction as f64 / PER_ONE);
            let found = interpolate(low, low * ratio, fraction) as f64;
            prop_assert!((found - expected).abs() <= 1.0 + expected * 1e-8, "{} {}", found, expected);
        }
    }
}
