// SPDX-License-Identifier: Apache-2.0
//! Sums that only grow, with their differences between two instants, and maxima since an instant.

use std::iter::Sum;

/// Sums that can be compared with those of an earlier instant.
pub trait Since {
    /// The increase since `before`. Sums that were read one after the other can be short of each other by a little:
    /// that counts as nothing added.
    #[must_use]
    fn since(&self, before: &Self) -> Self;
}

impl Since for u64 {
    fn since(&self, before: &Self) -> Self {
        self.saturating_sub(*before)
    }
}

/// Sums that may be unknown.
impl<T: Since + Copy + Default> Since for Option<T> {
    fn since(&self, before: &Self) -> Self {
        self.map(|sum| sum.since(&before.unwrap_or_default()))
    }
}

impl<T: Since, const N: usize> Since for [T; N] {
    fn since(&self, before: &Self) -> Self {
        std::array::from_fn(|index| self[index].since(&before[index]))
    }
}

/// Implement [`Since`] for a `Copy` struct: the fields named are sums, all others stay as they are.
///
/// ```
/// use atoll_measures::Since;
///
/// #[derive(Clone, Copy)]
/// struct Passed { packets: u64, waiting: u64 }
/// atoll_measures::sums!(Passed { packets });
///
/// let before = Passed { packets: 5, waiting: 9 };
/// let difference = Passed { packets: 7, waiting: 1 }.since(&before);
/// assert_eq!((difference.packets, difference.waiting), (2, 1));
/// ```
#[macro_export]
macro_rules! sums {
    ($name:ident { $($sum:ident),+ $(,)? }) => {
        impl $crate::Since for $name {
            #[allow(clippy::needless_update, reason = "where every field is a sum")]
            fn since(&self, before: &Self) -> Self {
                Self {
                    $($sum: $crate::Since::since(&self.$sum, &before.$sum),)+
                    ..*self
                }
            }
        }
    };
}

/// Packets and their counted bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// How many.
    pub packets: u64,
    /// Their counted bytes.
    pub bytes: u64,
}

impl Count {
    /// Count one packet of `bytes`.
    #[inline]
    pub fn record(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }

    /// No longer count one packet of `bytes`.
    #[inline]
    pub fn remove(&mut self, bytes: u32) {
        self.packets -= 1;
        self.bytes -= u64::from(bytes);
    }
}

impl Sum for Count {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, count| Self {
            packets: sum.packets + count.packets,
            bytes: sum.bytes + count.bytes,
        })
    }
}

crate::sums!(Count { packets, bytes });

/// Sums at the last mark.
#[derive(Debug, Clone, Copy, Default)]
pub struct Marked<T>(T);

impl<T: Since + Copy> Marked<T> {
    /// The increase of the sums, which are `now` these, since the last call.
    pub fn measure(&mut self, now: T) -> T {
        now.since(&std::mem::replace(&mut self.0, now))
    }
}

/// The largest value since the last report and since the last mark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Peak {
    interval: u64,
    measurement: u64,
}

impl Peak {
    /// The value is now this.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.interval = self.interval.max(value);
        self.measurement = self.measurement.max(value);
    }

    /// The largest value since the last call; 0 if there was none.
    pub fn take_interval(&mut self) -> u64 {
        std::mem::take(&mut self.interval)
    }

    /// The largest value since the last call; 0 if there was none. The interval goes on.
    pub fn take_measurement(&mut self) -> u64 {
        std::mem::take(&mut self.measurement)
    }

    /// The largest value since the last report.
    #[must_use]
    pub fn interval(&self) -> u64 {
        self.interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_are_taken_back() {
        let mut count = Count::default();
        count.record(1500);
        count.record(40);
        let total: Count = [count, count].into_iter().sum();
        assert_eq!((total.packets, total.bytes), (4, 3080));
        count.remove(40);
        assert_eq!((count.packets, count.bytes), (1, 1500));
    }

    #[test]
    fn a_sum_that_is_short_of_an_earlier_one_adds_nothing() {
        assert_eq!(5_u64.since(&7), 0);
        assert_eq!([5, 9_u64].since(&[7, 2]), [0, 7]);
    }

    #[test]
    fn an_unknown_sum_stays_unknown() {
        assert_eq!(None.since(&Some(3_u64)), None);
        assert_eq!(Some(8_u64).since(&None), Some(8));
        assert_eq!(Some(8_u64).since(&Some(3)), Some(5));
    }
}
