// SPDX-License-Identifier: Apache-2.0
//! Losses and their bursts, from the numbers of the packets that arrived.

/// Numbers of packets are counted modulo this.
pub const NUMBER_MODULUS: u16 = 1 << 13;

/// The largest number of loss bursts' classes: of 1, 2, 3 to 4, 5 to 8 and more packets.
pub const BURST_CLASSES: usize = 5;

/// A number that is behind the newest one by so much or less is that of a packet that was overtaken or came twice.
const BEHIND_MAX: u16 = NUMBER_MODULUS / 8;

/// Sums since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LossSums {
    /// Packets that arrived.
    pub arrived: u64,
    /// Packets between them that did not. One that was overtaken counts as lost.
    pub lost: u64,
    /// Bursts by the number of packets lost in a row: 1, 2, 3 to 4, 5 to 8, more.
    pub runs: [u64; BURST_CLASSES],
}

impl LossSums {
    /// Packets lost in a row, however many, are one burst.
    #[must_use]
    pub fn bursts(&self) -> u64 {
        (self.runs.iter()).fold(0, |sum, each| sum.saturating_add(*each))
    }

    /// Packets that arrived or were lost.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.arrived.saturating_add(self.lost)
    }
}

/// Counts losses and bursts of a path that keeps the order of packets.
#[derive(Debug, Clone, Default)]
pub struct BurstCounter {
    /// The number after the newest one.
    next: Option<u16>,
    sums: LossSums,
}

impl BurstCounter {
    /// A packet arrived whose number, modulo [`NUMBER_MODULUS`], is `number`. More than 7168 losses in a row are counted modulo
    /// 8192.
    pub fn arrived(&mut self, number: u16) {
        let number = number % NUMBER_MODULUS;
        let next = self.next.unwrap_or(number);
        let lost = number.wrapping_sub(next) % NUMBER_MODULUS;
        if lost >= NUMBER_MODULUS - BEHIND_MAX {
            return;
        }
        self.next = Some((number + 1) % NUMBER_MODULUS);
        self.sums.arrived += 1;
        if lost > 0 {
            self.sums.lost += u64::from(lost);
            self.sums.runs[class(lost)] += 1;
        }
    }

    /// The sender began again: the number of its next packet says nothing about losses.
    pub fn restart(&mut self) {
        self.next = None;
    }

    /// The newest number.
    #[must_use]
    pub fn newest(&self) -> Option<u16> {
        self.next.map(|next| next.wrapping_sub(1) % NUMBER_MODULUS)
    }

    /// What was counted since the start.
    #[must_use]
    pub fn sums(&self) -> LossSums {
        self.sums
    }
}

/// Which of [`LossSums::runs`] counts a burst of `lost` packets.
fn class(lost: u16) -> usize {
    (lost.next_power_of_two().ilog2() as usize).min(BURST_CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bursts_are_counted_by_their_length() {
        let classes = [1, 2, 3, 4, 5, 8, 9, 7000].map(class);
        assert_eq!(classes, [0, 1, 2, 2, 3, 3, 4, 4]);
        let mut counter = BurstCounter::default();
        for number in [8190, 8191, 1, 2, 5, 5, 4, 6] {
            counter.arrived(number);
        }
        let sums = counter.sums();
        assert_eq!(
            (sums.arrived, sums.lost),
            (6, 3),
            "5 came twice, 4 was overtaken"
        );
        assert_eq!(sums.runs, [1, 1, 0, 0, 0]);
        assert_eq!(
            (sums.bursts(), sums.packets(), counter.newest()),
            (2, 9, Some(6))
        );
    }

    #[test]
    fn a_sender_that_begins_again_lost_nothing() {
        let mut counter = BurstCounter::default();
        counter.arrived(5);
        counter.restart();
        counter.arrived(3000);
        assert_eq!((counter.sums().arrived, counter.sums().lost), (2, 0));
    }

    proptest! {
        /// Between the first and the last packet that arrived.
        #[test]
        fn every_packet_arrived_or_was_lost(first in 0..NUMBER_MODULUS, fates in proptest::collection::vec(any::<bool>(), 1..9000)) {
            let mut counter = BurstCounter::default();
            for (number, _) in fates.iter().enumerate().filter(|(_, arrives)| **arrives) {
                counter.arrived(((usize::from(first) + number) % usize::from(NUMBER_MODULUS)) as u16);
            }
            let begin = fates.iter().position(|arrives| *arrives);
            let end = fates.iter().rposition(|arrives| *arrives);
            let (Some(begin), Some(end)) = (begin, end) else { return Ok(()) };
            let seen = &fates[begin..=end];
            let lost = seen.iter().filter(|arrives| !**arrives).count();
            let bursts = seen.windows(2).filter(|pair| pair[0] && !pair[1]).count();
            let sums = counter.sums();
            prop_assert_eq!((sums.lost, sums.bursts()), (lost as u64, bursts as u64));
            prop_assert_eq!(sums.packets(), seen.len() as u64);
        }

        #[test]
        fn no_numbers_make_it_panic(numbers: Vec<u16>) {
            let mut counter = BurstCounter::default();
            for number in numbers {
                counter.arrived(number);
            }
            prop_assert!(counter.sums().bursts() <= counter.sums().arrived);
        }
    }
}
