// SPDX-License-Identifier: Apache-2.0
//! What a receiver says to its sender, as bytes.
//!
//! All numbers are big-endian, and sums count from the receiver's start, so that a report that is lost is made up for by the
//! next one.
//!
//! | bytes | content |
//! |---|---|
//! | 0, 1 | 0xbf, 0: the upper four bits are the version of the headers of packets |
//! | 2, 3 | how many generations follow, at most 64 |
//! | 4 to 7 | number of the report |
//! | 8, 9 | number of the newest source packet, modulo 8192 |
//! | 10, 11 | 0 |
//! | 12 to 15 | time from its arrival to this report, in us |
//! | 16 to 23 | when it arrived, on the receiver's clock, in ns |
//! | 24 to 39 | source packets that arrived, and that were lost |
//! | 40 to 79 | bursts of 1, 2, 3 to 4, 5 to 8 and more lost packets |
//! | 80 to 103 | repair packets that arrived, packets that were recovered, packets that stayed lost |
//! | 104 to 107 | number of the first generation of those that follow; of a sliding window, of the first packet that is missing |
//! | from 108 | of each: how many independent packets arrived (2 bytes) |

use crate::bursts::{BURST_CLASSES, LossSums};

/// The most generations of a report.
pub const GENERATIONS_MAX: usize = 64;

const KIND: [u8; 2] = [0xbf, 0];
const FIXED_BYTES: usize = 108;
const RANK_BYTES: usize = 2;

/// What a receiver says to its sender.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Later reports have larger numbers (RFC 1982).
    pub number: u32,
    /// The number of the newest source packet, modulo [`crate::NUMBER_MODULUS`].
    pub newest: u16,
    /// When it arrived, on the receiver's clock.
    pub arrived_ns: u64,
    /// For how long the receiver waited then, until it sent this.
    pub held_us: u32,
    /// Source packets that arrived, those that did not, and their bursts.
    pub losses: LossSums,
    /// Repair packets that arrived.
    pub repairs: u64,
    /// Packets that were recovered.
    pub recovered: u64,
    /// Packets that stayed lost.
    pub residual: u64,
    /// The number of the first of [`Report::ranks`]; of a sliding window, which has none, of the first packet that is
    /// missing.
    pub first_generation: u32,
    /// How many independent packets arrived of each of the last generations. One that has as many as there are packets in it
    /// is complete.
    pub ranks: Vec<u16>,
}

impl Report {
    /// Whether this begins as reports do.
    #[must_use]
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.first() == Some(&KIND[0])
    }

    /// Read a report; `None` if the bytes are none.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = Reader(bytes.strip_prefix(&KIND)?);
        let count = usize::from(rest.u16()?);
        let (number, newest, _) = (rest.u32()?, rest.u16()?, rest.u16()?);
        let (held_us, arrived_ns) = (rest.u32()?, rest.u64()?);
        let (arrived, lost) = (rest.u64()?, rest.u64()?);
        let mut runs = [0; BURST_CLASSES];
        for bursts in &mut runs {
            *bursts = rest.u64()?;
        }
        let report = Self {
            number,
            newest,
            arrived_ns,
            held_us,
            losses: LossSums {
                arrived,
                lost,
                runs,
            },
            repairs: rest.u64()?,
            recovered: rest.u64()?,
            residual: rest.u64()?,
            first_generation: rest.u32()?,
            ranks: (0..count.min(GENERATIONS_MAX))
                .map_while(|_| rest.u16())
                .collect(),
        };
        (report.ranks.len() == count && rest.0.is_empty()).then_some(report)
    }

    /// Append the report's bytes. Of more than [`GENERATIONS_MAX`] generations, the last ones are written.
    pub fn write(&self, out: &mut Vec<u8>) {
        let left_out = self.ranks.len().saturating_sub(GENERATIONS_MAX);
        let ranks = &self.ranks[left_out..];
        out.extend(KIND);
        out.extend((ranks.len() as u16).to_be_bytes());
        out.extend(self.number.to_be_bytes());
        out.extend(self.newest.to_be_bytes());
        out.extend([0, 0]);
        out.extend(self.held_us.to_be_bytes());
        let LossSums {
            arrived,
            lost,
            runs,
        } = self.losses;
        let sums = [self.arrived_ns, arrived, lost].into_iter().chain(runs);
        for sum in sums.chain([self.repairs, self.recovered, self.residual]) {
            out.extend(sum.to_be_bytes());
        }
        out.extend(
            self.first_generation
                .wrapping_add(left_out as u32)
                .to_be_bytes(),
        );
        out.extend(ranks.iter().flat_map(|rank| rank.to_be_bytes()));
    }

    /// Its length in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        FIXED_BYTES + RANK_BYTES * self.ranks.len().min(GENERATIONS_MAX)
    }

    /// How many independent packets of a generation arrived, if the report says that.
    #[must_use]
    pub fn rank(&self, generation: u32) -> Option<u16> {
        let at = generation.wrapping_sub(self.first_generation) as usize;
        self.ranks.get(at).copied()
    }

    /// Whether it is later than the one of this number.
    #[must_use]
    pub fn is_after(&self, number: u32) -> bool {
        (1..1 << 31).contains(&self.number.wrapping_sub(number))
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(report: &Report) -> Vec<u8> {
        let mut bytes = Vec::new();
        report.write(&mut bytes);
        bytes
    }

    #[test]
    fn a_report_is_later_also_when_numbers_begin_again() {
        let report = Report {
            number: 2,
            first_generation: u32::MAX,
            ranks: vec![5, 6],
            ..Report::default()
        };
        assert!(
            report.is_after(1)
                && report.is_after(u32::MAX)
                && !report.is_after(2)
                && !report.is_after(3)
        );
        assert_eq!(
            [u32::MAX, 0, 1].map(|generation| report.rank(generation)),
            [Some(5), Some(6), None]
        );
    }

    #[test]
    fn of_many_generations_the_last_ones_are_written() {
        let report = Report {
            ranks: (0..70).collect(),
            first_generation: 3,
            ..Report::default()
        };
        let bytes = written(&report);
        assert_eq!(bytes.len(), report.length());
        let read = Report::parse(&bytes).unwrap();
        assert_eq!((read.first_generation, read.ranks), (9, (6..70).collect()));
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            (number, newest, held_us, first_generation) in any::<(u32, u16, u32, u32)>(),
            (arrived_ns, arrived, lost, runs, sums) in any::<(u64, u64, u64, [u64; BURST_CLASSES], [u64; 3])>(),
            ranks in proptest::collection::vec(any::<u16>(), 0..=GENERATIONS_MAX),
        ) {
            let [repairs, recovered, residual] = sums;
            let losses = LossSums { arrived, lost, runs };
            let report = Report {
                number, newest, arrived_ns, held_us, losses, repairs, recovered, residual, first_generation, ranks,
            };
            let bytes = written(&report);
            prop_assert_eq!(bytes.len(), report.length());
            prop_assert!(Report::is_one(&bytes));
            prop_assert_eq!(Report::parse(&bytes), Some(report));
        }

        #[test]
        fn a_report_that_was_cut_or_extended_is_none(ranks in 0..70_u16, cut in 1..40_usize) {
            let bytes = written(&Report { ranks: (0..ranks).collect(), ..Report::default() });
            let longer = [&bytes[..], &[0]].concat();
            prop_assert!(Report::parse(&longer).is_none());
            prop_assert!(Report::parse(&bytes[..bytes.len() - cut]).is_none());
        }

        #[test]
        fn no_bytes_make_it_panic(begins in any::<bool>(), mut bytes in any::<Vec<u8>>(), count in 0..70_u16) {
            if begins {
                bytes.splice(0..0, [&KIND[..], &count.to_be_bytes()].concat());
                bytes.resize(FIXED_BYTES + RANK_BYTES * usize::from(count), 7);
            }
            if let Some(report) = Report::parse(&bytes) {
                prop_assert!(report.ranks.len() <= GENERATIONS_MAX);
            }
        }
    }
}
