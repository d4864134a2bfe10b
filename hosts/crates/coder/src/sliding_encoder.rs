// SPDX-License-Identifier: Apache-2.0
//! The encoder of a window of packets: of a sliding window, whose repair packets are made between the packets, and of a
//! partial unit memory code, whose repair packets of a generation combine some packets of the one before it, too
//! (Lee, "Short unit-memory byte-oriented binary convolutional codes", 1976; Lauer, "Some optimal partial-unit-memory
//! codes", 1979). Each combines the last packets before it.

use crate::stream::{EncoderOutput, Repair, Shape, StreamEncoder};
use atoll_redundancy::Report;
use atoll_rlnc::{CodeError, Header, WindowEncoder};

/// Encodes the packets of one direction.
#[derive(Debug)]
pub(crate) struct SlidingEncoder {
    window: WindowEncoder,
    shape: Shape,
    /// Packets of the generation before, of a partial unit memory code; None: a sliding window.
    memory: Option<u16>,
    /// What packets have contributed to the next repair packets, in parts of one: as many as a generation has packets.
    share: u32,
    /// When a repair packet is made for the packets since the last one.
    flush_at_ns: Option<u64>,
}

impl SlidingEncoder {
    /// The first packet has the number `first`. `memory`: packets of the generation before, of a partial unit memory code.
    ///
    /// # Errors
    /// If the window's size is not one that the code has.
    pub(crate) fn new(shape: Shape, memory: Option<u16>, first: u32) -> Result<Self, CodeError> {
        Ok(Self {
            window: WindowEncoder::new(first, shape.size + memory.unwrap_or(0))?,
            shape,
            memory,
            share: 0,
            flush_at_ns: None,
        })
    }

    /// The share at which repair packets are made: of one, or of all those of a generation.
    fn due(&self) -> u32 {
        let repairs = self.memory.map_or(1, |_| self.shape.repairs);
        u32::from(self.shape.size) * u32::from(repairs)
    }

    fn repair(&mut self, count: u32, output: &mut EncoderOutput) -> Result<(), CodeError> {
        self.flush_at_ns = None;
        output.ended += u64::from(self.memory.is_some());
        for _ in 0..count {
            if self.window.is_empty() {
                break; // all of its packets have arrived
            }
            let mut symbol = Vec::new();
            let header = self.window.repair(&mut symbol)?;
            output.repairs.push(Repair { header, symbol });
        }
        Ok(())
    }
}

impl StreamEncoder for SlidingEncoder {
    fn push(&mut self, now_ns: u64, packet: &[u8]) -> Result<(Header, EncoderOutput), CodeError> {
        let header = self.window.push(packet)?;
        let mut output = EncoderOutput::default();
        if self.shape.repairs > 0 {
            let flush_at_ns = now_ns.saturating_add(self.shape.flush_ns);
            self.flush_at_ns.get_or_insert(flush_at_ns);
        }
        self.share += u32::from(self.shape.repairs);
        if self.shape.repairs > 0 && self.share >= self.due() {
            let size = u32::from(self.shape.size);
            self.repair(self.share / size, &mut output)?;
            self.share %= size;
        }
        Ok((header, output))
    }

    fn flush(&mut self, now_ns: u64) -> Result<EncoderOutput, CodeError> {
        let mut output = EncoderOutput::default();
        if self.flush_at_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            let count = self.share.div_ceil(self.shape.size.into());
            self.share = 0;
            self.repair(count, &mut output)?;
        }
        Ok(output)
    }

    fn end(&mut self) -> Result<EncoderOutput, CodeError> {
        let output = self.flush(u64::MAX)?;
        self.window.clear();
        self.share = 0;
        Ok(output)
    }

    fn next_ns(&self) -> Option<u64> {
        self.flush_at_ns
    }

    fn repairs(&self) -> u16 {
        self.shape.repairs
    }

    fn set_repairs(&mut self, repairs: u16) {
        self.shape.repairs = repairs;
    }

    fn learn(&mut self, report: &Report) {
        self.window.acknowledge(report.first_generation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn encoder(size: u16, repairs: u16) -> SlidingEncoder {
        let shape = Shape {
            size,
            repairs,
            interleave: 1,
            interspersed: true,
            flush_ns: 50 * MS,
        };
        SlidingEncoder::new(shape, None, u32::MAX).unwrap()
    }

    fn with_memory(memory: u16, size: u16, repairs: u16) -> SlidingEncoder {
        let shape = encoder(size, repairs).shape;
        SlidingEncoder::new(shape, Some(memory), 0).unwrap()
    }

    /// Of each packet: first packet and number of packets of the repair packets that follow it.
    fn pushed(encoder: &mut SlidingEncoder, packets: usize) -> Vec<Vec<(u32, u16)>> {
        let of = |repair: Repair| match repair.header {
            Header::WindowRepair { first, count, .. } => (first, count),
            other => panic!("{other:?}"),
        };
        (0..packets)
            .map(|number| {
                let (_, output) = encoder.push(0, &[number as u8]).unwrap();
                output.repairs.into_iter().map(of).collect()
            })
            .collect()
    }

    #[test]
    fn repair_packets_are_spread_evenly_and_are_of_the_last_packets() {
        let mut encoder = encoder(4, 2);
        let found = pushed(&mut encoder, 6);
        let expected = [
            vec![],
            vec![(u32::MAX, 2)],
            vec![],
            vec![(u32::MAX, 4)],
            vec![],
            vec![(1, 4)],
        ];
        assert_eq!(found, expected, "after 2^32 - 1 comes 0");
        let many: usize = pushed(&mut encoder, 4000).iter().map(Vec::len).sum();
        assert_eq!(many, 2000);
    }

    #[test]
    fn with_memory_repair_packets_end_a_generation_and_combine_some_of_the_one_before() {
        let found = pushed(&mut with_memory(2, 4, 3), 12);
        let of_generation = |last: usize| found[last].clone();
        assert_eq!(of_generation(3), vec![(0, 4); 3]);
        assert_eq!(of_generation(7), vec![(2, 6); 3]);
        assert_eq!(of_generation(11), vec![(6, 6); 3]);
        assert_eq!(found.iter().map(Vec::len).sum::<usize>(), 9);
    }

    #[test]
    fn a_generation_with_memory_that_is_not_whole_ends_by_time_with_its_share_rounded_up() {
        let mut encoder = with_memory(1, 10, 3);
        pushed(&mut encoder, 4);
        let output = encoder.flush(50 * MS).unwrap();
        assert_eq!((output.ended, output.repairs.len()), (1, 2));
        let whole = pushed(&mut encoder, 10);
        assert_eq!(
            (whole[8].len(), whole[9].len()),
            (0, 3),
            "the next one begins then"
        );
        let none = &mut with_memory(1, 10, 0);
        assert!(pushed(none, 20).iter().all(Vec::is_empty));
    }

    #[test]
    fn there_may_be_more_repair_packets_than_packets() {
        let found = pushed(&mut encoder(2, 5), 4);
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [2, 3, 2, 3]);
    }

    #[test]
    fn packets_after_the_last_repair_packet_get_one_by_time() {
        let mut encoder = encoder(10, 3);
        pushed(&mut encoder, 2);
        assert_eq!(encoder.next_ns(), Some(50 * MS));
        assert_eq!(encoder.flush(50 * MS - 1).unwrap().repairs.len(), 0);
        assert_eq!(encoder.flush(50 * MS).unwrap().repairs.len(), 1);
        assert_eq!(encoder.next_ns(), None);
        pushed(&mut encoder, 4);
        assert_eq!(encoder.next_ns(), None, "the last one was followed by one");
        let none = &mut super::tests::encoder(10, 0);
        pushed(none, 9);
        assert_eq!(none.next_ns(), None);
    }

    #[test]
    fn packets_that_arrived_are_combined_no_more() {
        let mut encoder = encoder(4, 1);
        pushed(&mut encoder, 3); // the last one has the number 1
        let report = |first_generation| Report {
            first_generation,
            ..Report::default()
        };
        encoder.learn(&report(1));
        assert_eq!(pushed(&mut encoder, 1), [[(1, 2)]]);
        pushed(&mut encoder, 1);
        encoder.learn(&report(4));
        assert_eq!(encoder.flush(u64::MAX).unwrap().repairs, []);
        assert_eq!(encoder.next_ns(), None);
    }
}
