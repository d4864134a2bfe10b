// SPDX-License-Identifier: Apache-2.0
//! Sums that only grow, with their differences between two instants, and maxima since an instant.

use std::iter::Sum;

/// Sums that can be added, and compared with those of an earlier instant.
pub trait Since: Sized {
    /// Combine each sum with that of another value.
    #[must_use]
    fn combine(&self, other: &Self, combine: fn(u64, u64) -> u64) -> Self;

    /// The increase since `before`. Sums that were read one after the other can be short of each other by a little:
    /// that counts as nothing added.
    #[must_use]
    fn since(&self, before: &Self) -> Self {
        self.combine(before, u64::saturating_sub)
    }

    /// Both together.
    #[must_use]
    fn plus(&self, other: &Self) -> Self {
        self.combine(other, |sum, other| sum + other)
    }
}

impl Since for u64 {
    fn combine(&self, other: &Self, combine: fn(u64, u64) -> u64) -> Self {
        combine(*self, *other)
    }
}

/// Sums that may be unknown.
impl<T: Since + Copy + Default> Since for Option<T> {
    fn combine(&self, other: &Self, combine: fn(u64, u64) -> u64) -> Self {
        self.map(|sum| sum.combine(&other.unwrap_or_default(), combine))
    }
}

impl<T: Since, const N: usize> Since for [T; N] {
    fn combine(&self, other: &Self, combine: fn(u64, u64) -> u64) -> Self {
        std::array::from_fn(|index| self[index].combine(&other[index], combine))
    }
}

/// Declare a `Copy` struct of sums, and of other fields, which stay as they are; implement [`Since`] for it.
///
/// ```
/// use atoll_measures::Since;
///
/// atoll_measures::sums! {
///     #[derive(Clone, Copy)]
///     struct Passed {
///         packets: u64,
///     } and others {
///         waiting: u64,
///     }
/// }
///
/// let before = Passed { packets: 5, waiting: 9 };
/// let difference = Passed { packets: 7, waiting: 1 }.since(&before);
/// assert_eq!((difference.packets, difference.waiting), (2, 1));
/// ```
#[macro_export]
macro_rules! sums {
    (
        $(#[$of_struct:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$of_sum:meta])* $sum_visibility:vis $sum:ident: $sum_type:ty,)+
        } $(and others {
            $($(#[$of_other:meta])* $other_visibility:vis $other:ident: $other_type:ty,)+
        })?
    ) => {
        $(#[$of_struct])*
        $visibility struct $name {
            $($(#[$of_sum])* $sum_visibility $sum: $sum_type,)+
            $($($(#[$of_other])* $other_visibility $other: $other_type,)+)?
        }

        impl $crate::Since for $name {
            fn combine(&self, other: &Self, combine: fn(u64, u64) -> u64) -> Self {
                Self {
                    $($sum: $crate::Since::combine(&self.$sum, &other.$sum, combine),)+
                    $($($other: self.$other,)+)?
                }
            }
        }
    };
}

crate::sums! {
    /// Packets and their counted bytes.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Count {
        /// How many.
        pub packets: u64,
        /// Their counted bytes.
        pub bytes: u64,
    }
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
        counts.fold(Self::default(), |sum, count| sum.plus(&count))
    }
}

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
