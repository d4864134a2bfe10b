// SPDX-License-Identifier: Apache-2.0
//! Durations counted in buckets whose width grows with them.

/// Linear parts of each power of two: an upper bound is at most 1/16 above what was counted.
const PARTS: u64 = 16;
const PARTS_LOG2: u32 = PARTS.trailing_zeros();

/// Counts of durations from 0 to centuries, in buckets at most 6.25 % wide.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    /// Count of each bucket; as long as the longest duration asks for.
    buckets: Vec<u64>,
    count: u64,
    sum_ns: u64,
    max_ns: u64,
}

impl Histogram {
    /// Count one duration.
    #[inline]
    pub fn record(&mut self, duration_ns: u64) {
        let bucket = bucket_of(duration_ns);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(duration_ns);
        self.max_ns = self.max_ns.max(duration_ns);
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All durations together: 580 years hold every packet of a run.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The longest duration, exactly; 0 if there was none.
    #[must_use]
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The duration that `permille` of 1000 do not exceed, at most 1/16 too long; 0 if there was none.
    #[must_use]
    pub fn quantile_ns(&self, permille: u64) -> u64 {
        let rank = (self.count * permille).div_ceil(1000);
        let mut cumulative = 0;
        for (upper_ns, count) in self.non_empty() {
            cumulative += count;
            if cumulative >= rank {
                return upper_ns.min(self.max_ns);
            }
        }
        self.max_ns
    }

    /// The largest duration of each bucket that holds any, with its count, shortest first.
    pub fn non_empty(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.buckets
            .iter()
            .enumerate()
            .filter(|&(_, &count)| count > 0)
            .map(|(bucket, &count)| (upper_of(bucket), count))
    }
}

/// Below 16 ns a bucket each; above, the four bits after the leading one choose it.
fn bucket_of(duration_ns: u64) -> usize {
    if duration_ns < PARTS {
        return duration_ns as usize;
    }
    let shift = duration_ns.ilog2() - PARTS_LOG2;
    (u64::from(shift) * PARTS + (duration_ns >> shift)) as usize
}

fn upper_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * PARTS {
        return bucket;
    }
    let shift = bucket / PARTS - 1;
    let part = bucket % PARTS + PARTS;
    (part << shift) + ((1 << shift) - 1)
}

/// The list of its buckets: the largest duration of each in ns, and how many it holds.
#[cfg(feature = "serde")]
impl serde::Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.non_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "serde")]
    #[test]
    fn a_histogram_is_written_as_its_buckets() {
        let mut histogram = Histogram::default();
        for duration_ns in [0, 3, 3, 40] {
            histogram.record(duration_ns);
        }
        let text = serde_json::to_string(&histogram).unwrap();
        assert_eq!(text, "[[0,1],[3,2],[41,1]]");
    }
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bucket_bounds_what_it_counts_to_a_sixteenth(duration_ns: u64) {
            let upper_ns = upper_of(bucket_of(duration_ns));
            prop_assert!(upper_ns >= duration_ns);
            prop_assert!(upper_ns - duration_ns <= duration_ns / 16);
        }

        #[test]
        fn quantiles_are_those_of_the_sorted_list(mut durations in prop::collection::vec(0_u64..10_000_000, 1..200), permille in 1_u64..=1000) {
            let mut histogram = Histogram::default();
            for &duration_ns in &durations {
                histogram.record(duration_ns);
            }
            durations.sort_unstable();
            let exact = durations[(durations.len() as u64 * permille).div_ceil(1000) as usize - 1];
            let found = histogram.quantile_ns(permille);
            prop_assert!(exact <= found && found <= exact + exact / 16);
            prop_assert_eq!((histogram.count(), histogram.sum_ns()), (durations.len() as u64, durations.iter().sum()));
            prop_assert_eq!(histogram.max_ns(), durations[durations.len() - 1]);
            prop_assert_eq!(histogram.non_empty().map(|(_, count)| count).sum::<u64>(), durations.len() as u64);
        }
    }
}
