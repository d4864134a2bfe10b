// SPDX-License-Identifier: Apache-2.0
//! The encoder of one generation.

use atoll_gf256::{Arithmetic, Field, Term};

use crate::block_code::BlockEncoder;
use crate::errors::CodeError;
use crate::header::Header;
use crate::spare::{SpareTerms, extend_with_zeros, longest};
use crate::symbol::Sources;
use crate::{MOST_SOURCES, coefficients};

/// Takes the packets of one generation and combines them into repair packets.
#[derive(Debug)]
pub struct GenerationEncoder {
    arithmetic: Arithmetic,
    generation: u32,
    size: u16,
    sources: Sources,
    coefficients: Vec<u8>,
    terms: SpareTerms,
    next_seed: u32,
}

impl GenerationEncoder {
    /// The encoder of generation number `generation`, which has at most `size` packets.
    ///
    /// # Errors
    /// If `size` is not 2 to [`MOST_SOURCES`].
    pub fn new(generation: u32, size: u16) -> Result<Self, CodeError> {
        check_size(size)?;
        Ok(Self {
            arithmetic: Arithmetic::new(Field::Aes),
            generation,
            size,
            sources: Sources::default(),
            coefficients: Vec::new(),
            terms: SpareTerms::default(),
            next_seed: 0,
        })
    }
}

impl BlockEncoder for GenerationEncoder {
    fn push(&mut self, packet: &[u8]) -> Result<Header, CodeError> {
        let limit = usize::from(self.size);
        self.sources.push(packet, limit, self.generation)
    }

    /// A combination of all packets so far, two bytes longer than the longest of them.
    fn repair(&mut self, symbol: &mut Vec<u8>) -> Result<Header, CodeError> {
        let symbols = self.sources.symbols();
        check_sources(symbols.len(), usize::from(self.size))?;
        let (generation, count, seed) = (self.generation, symbols.len() as u16, self.next_seed);
        self.next_seed = seed.wrapping_add(1);
        self.coefficients.clear();
        let field = self.arithmetic.field();
        coefficients::of_generation(field, generation, count, seed, &mut self.coefficients);
        combine(
            self.arithmetic,
            symbols.iter().map(Vec::as_slice),
            &self.coefficients,
            &mut self.terms,
            symbol,
        );
        Ok(Header::Repair {
            generation,
            count,
            seed,
        })
    }

    fn restart(&mut self, generation: u32) {
        self.generation = generation;
        self.next_seed = 0;
        self.sources.clear();
    }
}

pub(crate) fn check_size(size: u16) -> Result<(), CodeError> {
    match size {
        2..=MOST_SOURCES => Ok(()),
        _ => Err(CodeError::GenerationSize(usize::from(size))),
    }
}

/// Refuse a number of sources, or none, for which there is no room.
pub(crate) fn check_sources(sources: usize, limit: usize) -> Result<(), CodeError> {
    if (1..=limit).contains(&sources) {
        return Ok(());
    }
    Err(CodeError::Sources { sources, limit })
}

/// Replace `sum` by a combination of symbols, as long as the longest of them.
pub(crate) fn combine<'a>(
    arithmetic: Arithmetic,
    symbols: impl Iterator<Item = &'a [u8]>,
    coefficients: &[u8],
    spare: &mut SpareTerms,
    sum: &mut Vec<u8>,
) {
    let mut terms = spare.take();
    terms.extend(symbols.zip(coefficients).map(|(source, factor)| Term {
        source,
        factor: *factor,
    }));
    sum.clear();
    extend_with_zeros(sum, longest(&terms));
    arithmetic.add_products(sum, &mut terms);
    spare.give_back(terms);
}
