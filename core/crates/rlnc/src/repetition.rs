// SPDX-License-Identifier: Apache-2.0
//! Repetition behind the interface of block codes: the baseline for others.

use crate::block_code::{BlockCode, BlockDecoder, BlockEncoder, Progress};
use crate::errors::CodeError;
use crate::generation_encoder::{check_size, check_sources};
use crate::header::Header;
use crate::symbol::{self, Sources};

/// Repair packets are the packets of the generation again, one after the other.
#[derive(Debug, Clone, Copy)]
pub struct Repetition {
    /// Packets of a generation, 2 to [`crate::MOST_SOURCES`].
    pub size: u16,
}

#[derive(Debug)]
struct Encoder {
    generation: u32,
    size: usize,
    sources: Sources,
    repairs: u32,
}

#[derive(Debug)]
struct Decoder {
    longest_packet: usize,
    known: Vec<bool>,
    count: u16,
    recovered: Vec<(u16, Vec<u8>)>,
}

impl BlockCode for Repetition {
    fn encoder(&self, generation: u32) -> Result<Box<dyn BlockEncoder>, CodeError> {
        check_size(self.size)?;
        Ok(Box::new(Encoder {
            generation,
            size: usize::from(self.size),
            sources: Sources::default(),
            repairs: 0,
        }))
    }

    fn decoder(
        &self,
        _generation: u32,
        longest_packet: usize,
    ) -> Result<Box<dyn BlockDecoder>, CodeError> {
        check_size(self.size)?;
        let known = vec![false; usize::from(self.size)];
        Ok(Box::new(Decoder {
            longest_packet,
            known,
            count: 0,
            recovered: Vec::new(),
        }))
    }
}

impl BlockEncoder for Encoder {
    fn push(&mut self, packet: &[u8]) -> Result<Header, CodeError> {
        self.sources.push(packet, self.size, self.generation)
    }

    fn repair(&mut self, symbol: &mut Vec<u8>) -> Result<Header, CodeError> {
        let (count, seed) = (self.sources.symbols().len(), self.repairs);
        check_sources(count, self.size)?;
        self.repairs = seed.wrapping_add(1);
        symbol.clone_from(&self.sources.symbols()[seed as usize % count]);
        Ok(Header::Repair {
            generation: self.generation,
            count: count as u16,
            seed,
        })
    }

    fn restart(&mut self, generation: u32) {
        self.generation = generation;
        self.sources.clear();
        self.repairs = 0;
    }
}

impl Decoder {
    /// Count a source. False if it is known.
    fn mark(&mut self, index: u16, count: u16) -> Result<bool, CodeError> {
        check_sources(usize::from(count), self.known.len())?;
        self.count = self.count.max(count);
        Ok(!std::mem::replace(
            &mut self.known[usize::from(index)],
            true,
        ))
    }
}

impl BlockDecoder for Decoder {
    fn systematic(&mut self, index: u16, packet: &[u8]) -> Result<Progress, CodeError> {
        symbol::check_length(symbol::PREFIX + packet.len(), self.longest_packet)?;
        self.mark(index, index.saturating_add(1)).map(Progress::of)
    }

    fn repair(&mut self, count: u16, seed: u32, symbol: &[u8]) -> Result<Progress, CodeError> {
        symbol::check_length(symbol.len(), self.longest_packet)?;
        let mut symbol = symbol.to_vec();
        symbol::trim(&mut symbol)?;
        let index = (seed % u32::from(count.max(1))) as u16;
        let useful = self.mark(index, count)?;
        if useful {
            self.recovered
                .push((index, symbol::packet(&symbol).to_vec()));
        }
        Ok(Progress::of(useful))
    }

    fn take_recovered(&mut self, take: &mut dyn FnMut(u16, &[u8])) {
        for (index, packet) in self.recovered.drain(..) {
            take(index, &packet);
        }
    }

    fn restart(&mut self, _generation: u32) {
        self.known.fill(false);
        self.count = 0;
        self.recovered.clear();
    }

    fn missing(&self) -> u16 {
        self.count - self.known.iter().filter(|known| **known).count() as u16
    }
}
