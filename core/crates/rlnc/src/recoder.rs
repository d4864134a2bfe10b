// SPDX-License-Identifier: Apache-2.0
//! Recoding: combinations of what arrived, without decoding.

use atoll_gf256::{Arithmetic, Field};
use atoll_random::SplitMix64;

use crate::errors::CodeError;
use crate::generation_encoder::{check_size, check_sources, combine};
use crate::header::Header;
use crate::spare::SpareTerms;
use crate::{coefficients, symbol};

/// Combines the packets of a generation that a node between encoder and decoder has.
///
/// Such a combination has no seed from which its coefficients follow, so they are sent: one byte for each source, after
/// the header. A node that has decoded the generation needs no recoder: it can encode again.
#[derive(Debug)]
pub struct Recoder {
    arithmetic: Arithmetic,
    generation: u32,
    size: u16,
    longest_packet: usize,
    held: Vec<(Vec<u8>, Vec<u8>)>,
    draws: SplitMix64,
    terms: SpareTerms,
}

impl Recoder {
    /// The recoder of generation number `generation`, which has at most `size` packets of at most `longest_packet`
    /// bytes. Nodes that combine the same packets need different seeds.
    ///
    /// # Errors
    /// If `size` is not 2 to [`crate::MOST_SOURCES`].
    pub fn new(
        generation: u32,
        size: u16,
        longest_packet: usize,
        seed: u64,
    ) -> Result<Self, CodeError> {
        check_size(size)?;
        let draws = SplitMix64::at(&[seed, u64::from(generation)]);
        Ok(Self {
            arithmetic: Arithmetic::new(Field::Aes),
            generation,
            size,
            longest_packet,
            held: Vec::new(),
            draws,
            terms: SpareTerms::default(),
        })
    }

    /// Take a packet as it was.
    ///
    /// # Errors
    /// If its number or length is not one of this generation.
    pub fn systematic(&mut self, index: u16, packet: &[u8]) -> Result<(), CodeError> {
        let mut coefficients = vec![0; usize::from(index)];
        coefficients.push(1);
        self.recoded(&coefficients, &symbol::of_packet(packet)?)
    }

    /// Take a repair packet, by the fields of its header.
    ///
    /// # Errors
    /// If its number or length is not one of this generation.
    pub fn repair(&mut self, count: u16, seed: u32, symbol: &[u8]) -> Result<(), CodeError> {
        self.check(usize::from(count), symbol)?;
        let mut coefficients = Vec::with_capacity(usize::from(count) + 7);
        let generation = self.generation;
        coefficients::of_generation(Field::Aes, generation, count, seed, &mut coefficients);
        self.recoded(&coefficients, symbol)
    }

    /// Take another recoder's packet.
    ///
    /// # Errors
    /// If its number or length is not one of this generation.
    pub fn recoded(&mut self, coefficients: &[u8], symbol: &[u8]) -> Result<(), CodeError> {
        self.check(coefficients.len(), symbol)?;
        if self.held.len() < usize::from(self.size) {
            self.held.push((coefficients.to_vec(), symbol.to_vec()));
        } else {
            // All the room is taken: mix it into one of them, so that nothing new is lost and memory is bounded.
            let (place, factor) = (
                self.draws.up_to(self.held.len() as u64 - 1) as usize,
                self.factor(),
            );
            let (held, sum) = &mut self.held[place];
            held.resize(held.len().max(coefficients.len()), 0);
            sum.resize(sum.len().max(symbol.len()), 0);
            self.arithmetic.add_product(held, coefficients, factor);
            self.arithmetic.add_product(sum, symbol, factor);
        }
        Ok(())
    }

    /// Replace `coefficients` and `symbol` by a random combination of all packets held. They are sent one after the
    /// other, behind the header.
    ///
    /// # Errors
    /// If there was no packet yet.
    pub fn combine(
        &mut self,
        coefficients: &mut Vec<u8>,
        symbol: &mut Vec<u8>,
    ) -> Result<Header, CodeError> {
        check_sources(self.held.len(), usize::from(self.size))?;
        let factors: Vec<u8> = (0..self.held.len()).map(|_| self.factor()).collect();
        combine(
            self.arithmetic,
            self.held.iter().map(|(row, _)| row.as_slice()),
            &factors,
            &mut self.terms,
            coefficients,
        );
        combine(
            self.arithmetic,
            self.held.iter().map(|(_, symbol)| symbol.as_slice()),
            &factors,
            &mut self.terms,
            symbol,
        );
        Ok(Header::Recoded {
            generation: self.generation,
            count: coefficients.len() as u16,
        })
    }

    fn factor(&mut self) -> u8 {
        1 + self.draws.up_to(254) as u8
    }

    fn check(&self, sources: usize, symbol: &[u8]) -> Result<(), CodeError> {
        check_sources(sources, usize::from(self.size))?;
        symbol::check_length(symbol.len(), self.longest_packet)
    }
}
