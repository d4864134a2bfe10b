// SPDX-License-Identifier: Apache-2.0
//! Jitter: how far a packet's delay is from the configured one.

use crate::{Nanoseconds, SplitMix64};
use std::f64::consts::SQRT_2;

/// Deviations end here, in standard deviations, as they do in netem's tables. Beyond lie 6e-5 of the normal
/// distribution and 0.8 % of the Pareto distribution, which all become the longest deviation.
const LONGEST_DEVIATIONS: u64 = 4;
/// Shape of the Pareto distribution, that of netem's table; with scale 1 it has
/// this mean and standard deviation.
const PARETO_SHAPE: f64 = 3.0;
const PARETO_MEAN: f64 = PARETO_SHAPE / (PARETO_SHAPE - 1.0);
const PARETO_STANDARD_DEVIATION: f64 = 0.866_025_403_784_438_6; // sqrt(3) / 2

/// A distribution around the configured delay.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct JitterSettings {
    /// Which distribution.
    pub kind: JitterKind,
    /// Half-width (uniform) or standard deviation (normal, Pareto).
    pub amount_ns: Nanoseconds,
    /// Correlation between one packet's deviation and the next one's, 0 to 1.
    ///
    /// A first-order autoregressive normal process, mapped to the distribution (a Gaussian copula):
    /// however correlated, deviations keep the configured distribution. (For the uniform
    /// and the Pareto distribution the correlation is that of the underlying process, slightly above their own.)
    #[cfg_attr(feature = "serde", serde(default))]
    pub correlation: f64,
}

/// Distributions of jitter; all but the tail's end of mean 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum JitterKind {
    /// Evenly within the half-width.
    Uniform,
    /// Normal, cut at 4 standard deviations.
    Normal,
    /// Pareto of shape 3, moved to mean 0: mostly a little early, sometimes very late; cut at 4
    /// standard deviations.
    Pareto,
}

impl JitterSettings {
    /// Uniform and uncorrelated.
    #[must_use]
    pub fn uniform(amount_ns: Nanoseconds) -> Self {
        Self {
            kind: JitterKind::Uniform,
            amount_ns,
            correlation: 0.0,
        }
    }

    /// By how much a packet can be faster than the configured delay.
    #[must_use]
    pub fn earliest_ns(&self) -> Nanoseconds {
        match self.kind {
            JitterKind::Uniform | JitterKind::Pareto => self.amount_ns, // Pareto: 0.58 of it
            JitterKind::Normal => LONGEST_DEVIATIONS * self.amount_ns,
        }
    }
}

/// Draws deviations.
#[derive(Debug, Clone)]
pub(crate) struct Jitter {
    settings: JitterSettings,
    random: SplitMix64,
    /// Of the underlying normal process, once there is one.
    last_normal: Option<f64>,
}

impl Jitter {
    pub(crate) fn new(settings: JitterSettings, random: SplitMix64) -> Self {
        Self {
            settings,
            random,
            last_normal: None,
        }
    }

    /// Draw by these settings from now on.
    pub(crate) fn change(&mut self, settings: JitterSettings) {
        self.settings = settings;
    }

    /// Of the next packet, in nanoseconds.
    pub(crate) fn deviation_ns(&mut self) -> i64 {
        let JitterSettings {
            kind,
            amount_ns,
            correlation,
        } = self.settings;
        let amount = signed(amount_ns);
        if amount == 0 {
            return 0;
        }
        let deviations = match kind {
            JitterKind::Uniform if correlation == 0.0 => {
                return signed(self.random.up_to(2 * amount_ns)) - amount;
            }
            JitterKind::Uniform => 1.0 - 2.0 * upper_tail(self.next_normal()),
            JitterKind::Normal => self.next_normal(),
            JitterKind::Pareto => {
                let scale = libm::cbrt(1.0 / upper_tail(self.next_normal()));
                (scale - PARETO_MEAN) / PARETO_STANDARD_DEVIATION
            }
        };
        let longest = LONGEST_DEVIATIONS as f64;
        libm::round(amount as f64 * deviations.clamp(-longest, longest)) as i64
    }

    /// Normally distributed, correlated with the one before.
    fn next_normal(&mut self) -> f64 {
        let correlation = self.settings.correlation;
        let drawn = self.random.normal();
        let next = match self.last_normal {
            None => drawn,
            Some(last) => correlation * last + libm::sqrt(1.0 - correlation * correlation) * drawn,
        };
        self.last_normal = Some(next);
        next
    }
}

/// Durations here are hours at most.
fn signed(duration_ns: Nanoseconds) -> i64 {
    i64::try_from(duration_ns).unwrap_or(i64::MAX)
}

/// The share of the normal distribution above `deviations`, between 0 and 1.
fn upper_tail(deviations: f64) -> f64 {
    0.5 * libm::erfc(deviations / SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMOUNT_NS: u64 = 1_000_000;

    fn drawn(kind: JitterKind, correlation: f64) -> Vec<f64> {
        let settings = JitterSettings {
            kind,
            amount_ns: AMOUNT_NS,
            correlation,
        };
        let mut jitter = Jitter::new(settings, SplitMix64::new(1, 0));
        let deviation = |_| jitter.deviation_ns() as f64 / AMOUNT_NS as f64;
        (0..200_000).map(deviation).collect()
    }

    fn mean(numbers: impl ExactSizeIterator<Item = f64>) -> f64 {
        let count = numbers.len() as f64;
        numbers.sum::<f64>() / count
    }

    /// Share of `drawn` at most `bound`.
    fn share(drawn: &[f64], bound: f64) -> f64 {
        drawn.iter().filter(|&&number| number <= bound).count() as f64 / drawn.len() as f64
    }

    #[test]
    fn each_kind_has_its_distribution_whatever_the_correlation() {
        for correlation in [0.0, 0.25, 0.9] {
            // A strongly correlated sequence tells less about its distribution.
            let tolerance = if correlation > 0.5 { 0.015 } else { 0.006 };
            let is = |drawn: &[f64], bound, expected: f64| {
                let found = share(drawn, bound);
                assert!(
                    (found - expected).abs() < tolerance,
                    "{correlation} {bound}: {found}"
                );
            };
            let uniform = drawn(JitterKind::Uniform, correlation);
            is(&uniform, -0.5, 0.25);
            is(&uniform, 0.8, 0.9);
            assert!(uniform.iter().all(|number| number.abs() <= 1.0));
            let normal = drawn(JitterKind::Normal, correlation);
            is(&normal, -1.0, 0.158_66);
            is(&normal, 2.0, 0.977_25);
            let pareto = drawn(JitterKind::Pareto, correlation);
            // 1 - x^-3 at x = 1.5 + 0.866 d
            is(&pareto, 0.0, 1.0 - 1.5_f64.powi(-3));
            is(&pareto, 2.0, 1.0 - 3.232_05_f64.powi(-3));
            assert!(
                pareto
                    .iter()
                    .all(|&number| (-0.577_351..=4.0).contains(&number))
            );
        }
    }

    #[test]
    fn neighbours_are_correlated_as_asked_for() {
        for correlation in [0.0, 0.25, 0.9] {
            for kind in [JitterKind::Uniform, JitterKind::Normal] {
                let drawn = drawn(kind, correlation);
                let centre = mean(drawn.iter().copied());
                let spread = mean(drawn.iter().map(|number| (number - centre).powi(2)));
                let products: Vec<f64> = drawn
                    .windows(2)
                    .map(|pair| (pair[0] - centre) * (pair[1] - centre))
                    .collect();
                let found = mean(products.into_iter()) / spread;
                assert!(
                    (found - correlation).abs() < 0.02,
                    "{kind:?} {correlation}: {found}"
                );
            }
        }
    }
}
