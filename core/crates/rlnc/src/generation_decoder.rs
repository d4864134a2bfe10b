// SPDX-License-Identifier: Apache-2.0
//! Random linear network coding as a block code, and its decoder of one generation.

use atoll_gf256::Field;

use crate::block_code::{BlockCode, BlockDecoder, BlockEncoder, Progress};
use crate::coefficients;
use crate::elimination::Elimination;
use crate::errors::CodeError;
use crate::generation_encoder::{GenerationEncoder, check_size, check_sources};
use crate::symbol;

/// Random linear network coding in generations of at most `size` packets.
#[derive(Debug, Clone, Copy)]
pub struct Rlnc {
    /// 2 to [`crate::MOST_SOURCES`].
    pub size: u16,
}

impl BlockCode for Rlnc {
    fn encoder(&self, generation: u32) -> Result<Box<dyn BlockEncoder>, CodeError> {
        Ok(Box::new(GenerationEncoder::new(generation, self.size)?))
    }

    fn decoder(
        &self,
        generation: u32,
        longest_packet: usize,
    ) -> Result<Box<dyn BlockDecoder>, CodeError> {
        let decoder = GenerationDecoder::new(generation, self.size, longest_packet)?;
        Ok(Box::new(decoder))
    }
}

/// Recovers the packets of one generation from any sufficient set of its packets.
///
/// It holds at most twice as many symbols as the generation has packets, whatever it is given.
#[derive(Debug)]
pub struct GenerationDecoder {
    generation: u32,
    size: u16,
    longest_packet: usize,
    /// The largest number of sources that was seen.
    count: u16,
    elimination: Elimination,
}

impl GenerationDecoder {
    /// The decoder of generation number `generation`, which has at most `size` packets of at most `longest_packet`
    /// bytes.
    ///
    /// # Errors
    /// If `size` is not 2 to [`crate::MOST_SOURCES`].
    pub fn new(generation: u32, size: u16, longest_packet: usize) -> Result<Self, CodeError> {
        check_size(size)?;
        Ok(Self {
            generation,
            size,
            longest_packet,
            count: 0,
            elimination: Elimination::new(Field::Aes, 0),
        })
    }

    /// Take a combination by its coefficients, as of [`crate::Recoder`].
    ///
    /// # Errors
    /// Those of [`BlockDecoder::repair`].
    pub fn recoded(&mut self, coefficients: &[u8], symbol: &[u8]) -> Result<Progress, CodeError> {
        self.grow_to(coefficients.len())?;
        symbol::check_length(symbol.len(), self.longest_packet)?;
        let mut row = self.elimination.spare_row();
        row.extend_from_slice(coefficients);
        self.insert(row, symbol)
    }

    /// The number of independent packets that it has, out of the sources seen so far.
    #[must_use]
    pub fn rank(&self) -> u16 {
        self.elimination.rank() as u16
    }

    fn grow_to(&mut self, sources: usize) -> Result<(), CodeError> {
        check_sources(sources, usize::from(self.size))?;
        self.elimination.grow(sources);
        self.count = self.count.max(sources as u16);
        Ok(())
    }

    fn insert(&mut self, coefficients: Vec<u8>, symbol: &[u8]) -> Result<Progress, CodeError> {
        if self.elimination.rank() == self.elimination.columns() {
            self.elimination.give_back_row(coefficients);
            return Ok(Progress::Redundant);
        }
        self.elimination
            .insert(coefficients, symbol)
            .map(Progress::of)
    }
}

impl BlockDecoder for GenerationDecoder {
    fn systematic(&mut self, index: u16, packet: &[u8]) -> Result<Progress, CodeError> {
        symbol::check_length(symbol::PREFIX + packet.len(), self.longest_packet)?;
        symbol::check_packet(packet)?;
        self.grow_to(usize::from(index) + 1)?;
        self.elimination
            .learn(usize::from(index), packet)
            .map(Progress::of)
    }

    fn repair(&mut self, count: u16, seed: u32, symbol: &[u8]) -> Result<Progress, CodeError> {
        symbol::check_length(symbol.len(), self.longest_packet)?;
        self.grow_to(usize::from(count))?;
        let (generation, mut coefficients) = (self.generation, self.elimination.spare_row());
        coefficients::of_generation(Field::Aes, generation, count, seed, &mut coefficients);
        self.insert(coefficients, symbol)
    }

    fn take_recovered(&mut self, take: &mut dyn FnMut(u16, &[u8])) {
        self.elimination
            .each_recovered(|column, symbol| take(column as u16, symbol::packet(symbol)));
    }

    fn restart(&mut self, generation: u32) {
        self.generation = generation;
        self.count = 0;
        self.elimination.restart();
    }

    fn missing(&self) -> u16 {
        self.count - self.rank()
    }
}
