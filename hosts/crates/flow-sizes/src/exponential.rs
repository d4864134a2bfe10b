// SPDX-License-Identifier: Apache-2.0
//! Exponential waits by integers alone, so that every machine waits the same nanoseconds.

use crate::draws;

/// ln 2 in units of 2^-64.
const LN_2: u128 = 0xb172_17f7_d1cf_79ac;

/// Bits of the fraction of a logarithm.
const FRACTION_BITS: u32 = 32;

/// The wait before flow `flow` of channel `channel`, nanoseconds: exponential with mean `mean_ns`, whatever the sizes
/// and servers of the flows. A promise as [`crate::draw`] is one.
#[must_use]
pub fn exponential_ns(mean_ns: u64, seed: u64, channel: u64, flow: u64) -> u64 {
    let [_, _, uniform] = draws(seed, channel, flow);
    let minus_log2 = (64_u128 << FRACTION_BITS) - u128::from(log2(u128::from(uniform) + 1));
    let minus_ln = (minus_log2 * LN_2) >> 64; // at most 45 * 2^32
    u64::try_from((minus_ln * u128::from(mean_ns)) >> FRACTION_BITS).unwrap_or(u64::MAX)
}

/// log2 of `number`, 1 to 2^64, in units of 2^-32, rounded down: a bit of the fraction for each squaring.
fn log2(number: u128) -> u64 {
    let whole = number.ilog2();
    let mut mantissa = (number << 62) >> whole; // from 1 to below 2, in units of 2^-62
    let mut found = u64::from(whole);
    for _ in 0..FRACTION_BITS {
        mantissa = (mantissa * mantissa) >> 62;
        found <<= 1;
        if mantissa >= 1 << 63 {
            mantissa >>= 1;
            found |= 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_never_change() {
        let waits = [(1, 0, 0), (1, 0, 1), (1, 1, 0), (2, 0, 0)]
            .map(|(seed, channel, flow)| exponential_ns(1_000_000_000, seed, channel, flow));
        assert_eq!(
            waits,
            [176_421_093, 2_160_149_875, 273_851_491, 831_067_475]
        );
    }

    #[test]
    fn logarithms_are_those_of_floating_point() {
        for number in [
            1,
            2,
            3,
            7,
            1000,
            1 << 40,
            (1 << 63) + 12_345,
            u128::from(u64::MAX),
            1 << 64,
        ] {
            let found = log2(number) as f64 / f64::from(1_u32 << 31) / 2.0;
            assert!(
                (found - (number as f64).log2()).abs() < 1e-8,
                "{number} {found}"
            );
        }
    }

    #[test]
    fn waits_are_exponential_and_unrelated_to_sizes() {
        let (mean_ns, count) = (1_000_000_u64, 200_000_u64);
        let mut waits: Vec<u64> = (0..count)
            .map(|flow| exponential_ns(mean_ns, 9, flow % 50, flow / 50))
            .collect();
        let mean = waits.iter().sum::<u64>() as f64 / count as f64;
        assert!((mean / mean_ns as f64 - 1.0).abs() < 0.01, "{mean}");
        waits.sort_unstable();
        let distance = waits
            .iter()
            .zip(0..)
            .map(|(&wait, rank)| {
                let share = 1.0 - (-(wait as f64) / mean_ns as f64).exp();
                (share - f64::from(rank) / count as f64).abs()
            })
            .fold(0.0, f64::max);
        assert!(distance < 1.95 / (count as f64).sqrt(), "{distance}");
        let sizes = crate::Distribution::published();
        let median = sizes.quantile(1 << 63);
        let long_and_large = (0..10_000)
            .filter(|&flow| {
                crate::draw(&sizes, 9, 0, flow, 1).size_bytes > median
                    && exponential_ns(mean_ns, 9, 0, flow) > 693_147
            })
            .count();
        // A quarter is expected, with a standard deviation of 43.
        assert!((2_300..2_700).contains(&long_and_large), "{long_and_large}");
    }
}
