// SPDX-License-Identifier: Apache-2.0
//! The encoder of block codes: packets into generations, and the repair packets of each.

use crate::stream::{EncoderOutput, Repair, Shape, StreamEncoder};
use atoll_rlnc::{BlockCode, BlockEncoder, CodeError, Header};

/// Encodes the packets of one direction.
#[derive(Debug)]
pub(crate) struct Encoder {
    code: Box<dyn BlockCode>,
    shape: Shape,
    open: Vec<Option<Generation>>,
    turn: usize,
    next: u32,
}

#[derive(Debug)]
struct Generation {
    encoder: Box<dyn BlockEncoder>,
    sources: u16,
    repairs: u16,
    flush_at_ns: u64,
}

impl Encoder {
    /// The first generation has the number `first`.
    pub(crate) fn new(code: Box<dyn BlockCode>, shape: Shape, first: u32) -> Self {
        Self {
            code,
            shape,
            open: (0..shape.interleave).map(|_| None).collect(),
            turn: 0,
            next: first,
        }
    }

    fn begin(&mut self, now_ns: u64) -> Result<Generation, CodeError> {
        let number = self.next;
        self.next = number.wrapping_add(1);
        Ok(Generation {
            encoder: self.code.encoder(number)?,
            sources: 0,
            repairs: 0,
            flush_at_ns: now_ns.saturating_add(self.shape.flush_ns),
        })
    }
}

impl StreamEncoder for Encoder {
    fn push(&mut self, now_ns: u64, packet: &[u8]) -> Result<(Header, EncoderOutput), CodeError> {
        let slot = self.turn;
        self.turn = (slot + 1) % self.open.len();
        let mut generation = match self.open[slot].take() {
            Some(open) => open,
            None => self.begin(now_ns)?,
        };
        let header = generation.encoder.push(packet)?;
        generation.sources += 1;
        let mut output = EncoderOutput::default();
        let is_complete = generation.sources == self.shape.size;
        if is_complete || self.shape.interspersed {
            let share = u32::from(self.shape.repairs) * u32::from(generation.sources);
            let due = share / u32::from(self.shape.size);
            generation.repair(due as u16, &mut output.repairs)?;
        }
        if is_complete {
            output.ended = 1;
        } else {
            self.open[slot] = Some(generation);
        }
        Ok((header, output))
    }

    fn set_repairs(&mut self, repairs: u16) {
        self.shape.repairs = repairs;
    }

    fn repairs(&self) -> u16 {
        self.shape.repairs
    }

    /// When the next generation ends that is not whole.
    fn next_ns(&self) -> Option<u64> {
        let open = self.open.iter().flatten();
        open.map(|generation| generation.flush_at_ns).min()
    }

    /// End the generations whose time is over.
    fn flush(&mut self, now_ns: u64) -> Result<EncoderOutput, CodeError> {
        let mut output = EncoderOutput::default();
        for slot in &mut self.open {
            if let Some(mut generation) = slot.take_if(|open| open.flush_at_ns <= now_ns) {
                let share = u32::from(self.shape.repairs) * u32::from(generation.sources);
                let due = share.div_ceil(u32::from(self.shape.size));
                generation.repair(due as u16, &mut output.repairs)?;
                output.ended += 1;
            }
        }
        Ok(output)
    }
}

impl Generation {
    /// Make repair packets until there were so many.
    fn repair(&mut self, count: u16, repairs: &mut Vec<Repair>) -> Result<(), CodeError> {
        while self.repairs < count {
            let mut symbol = Vec::new();
            let header = self.encoder.repair(&mut symbol)?;
            repairs.push(Repair { header, symbol });
            self.repairs += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_rlnc::Rlnc;

    const MS: u64 = 1_000_000;

    fn encoder(size: u16, repairs: u16, interleave: usize, interspersed: bool) -> Encoder {
        let shape = Shape {
            size,
            repairs,
            interleave,
            interspersed,
            flush_ns: 50 * MS,
        };
        Encoder::new(Box::new(Rlnc { size }), shape, u32::MAX)
    }

    /// After each packet: its generation and index, and the number of repair packets.
    fn pushed(encoder: &mut Encoder, packets: usize) -> Vec<(u32, u16, usize)> {
        (0..packets)
            .map(|number| match encoder.push(0, &[number as u8]).unwrap() {
                (Header::Systematic { generation, index }, output) => {
                    (generation.wrapping_add(1), index, output.repairs.len())
                }
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn repair_packets_follow_a_whole_generation() {
        let found = pushed(&mut encoder(3, 2, 1, false), 4);
        assert_eq!(
            found,
            [(0, 0, 0), (0, 1, 0), (0, 2, 2), (1, 0, 0)],
            "after 2^32 - 1 comes 0"
        );
    }

    #[test]
    fn interspersed_repair_packets_are_spread_evenly() {
        let repairs: Vec<usize> = pushed(&mut encoder(10, 3, 1, true), 10)
            .into_iter()
            .map(|(_, _, repairs)| repairs)
            .collect();
        assert_eq!(repairs, [0, 0, 0, 1, 0, 0, 1, 0, 0, 1]);
    }

    #[test]
    fn neighbours_are_in_different_generations_when_interleaved() {
        let found = pushed(&mut encoder(2, 1, 3, false), 6);
        let places: Vec<(u32, u16)> = found
            .iter()
            .map(|(number, index, _)| (*number, *index))
            .collect();
        assert_eq!(places, [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]);
        assert_eq!(
            found.iter().map(|each| each.2).collect::<Vec<_>>(),
            [0, 0, 0, 1, 1, 1]
        );
    }

    #[test]
    fn a_generation_that_is_not_whole_ends_by_time_with_its_share_of_repair_packets() {
        let mut encoder = encoder(10, 3, 1, false);
        pushed(&mut encoder, 4);
        assert_eq!(encoder.next_ns(), Some(50 * MS));
        assert_eq!(encoder.flush(50 * MS - 1).unwrap().ended, 0);
        let output = encoder.flush(50 * MS).unwrap();
        assert_eq!(
            (output.ended, output.repairs.len()),
            (1, 2),
            "4 of 10, rounded up"
        );
        assert!(matches!(
            output.repairs[0].header,
            Header::Repair { count: 4, .. }
        ));
        assert_eq!(
            (encoder.next_ns(), encoder.flush(u64::MAX).unwrap().ended),
            (None, 0)
        );
    }

    #[test]
    fn the_number_of_repair_packets_may_change_within_a_generation() {
        for (interspersed, expected) in [(false, [0, 0, 0, 4]), (true, [0, 1, 2, 1])] {
            let mut encoder = encoder(4, 2, 1, interspersed);
            let mut found: Vec<usize> = pushed(&mut encoder, 2).iter().map(|each| each.2).collect();
            encoder.set_repairs(4);
            found.extend(pushed(&mut encoder, 2).iter().map(|each| each.2));
            assert_eq!(found, expected);
            encoder.set_repairs(0);
            assert!(pushed(&mut encoder, 4).iter().all(|each| each.2 == 0));
        }
    }

    #[test]
    fn without_repair_packets_generations_just_end() {
        let mut encoder = encoder(2, 0, 1, false);
        pushed(&mut encoder, 3);
        let output = encoder.flush(u64::MAX).unwrap();
        assert_eq!((output.ended, output.repairs.len()), (1, 0));
    }
}
