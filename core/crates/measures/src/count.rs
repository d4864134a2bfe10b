// SPDX-License-Identifier: Apache-2.0
//! Packets and bytes.

use crate::Since;
use std::iter::Sum;
use std::ops::{Add, Sub};

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

impl Add for Count {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
        }
    }
}

impl Sub for Count {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            packets: self.packets - other.packets,
            bytes: self.bytes - other.bytes,
        }
    }
}

impl Sum for Count {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Add::add)
    }
}

impl Since for Count {
    fn since(&self, before: &Self) -> Self {
        Self {
            packets: self.packets.since(&before.packets),
            bytes: self.bytes.since(&before.bytes),
        }
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
        assert_eq!(
            total - count,
            Count {
                packets: 3,
                bytes: 1580
            }
        );
    }
}
