// SPDX-License-Identifier: Apache-2.0
//! The encoder of one generation.

use atoll_gf256::{Arithmetic, Field, Term};

use crate::errors::CodeError;
use crate::header::Header;
use crate::spare::{SpareTerms, extend_with_zeros};
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

    /// Take the next packet; the header with which it is to be sent.
    ///
    /// # Errors
    /// If the generation is full, or the packet is longer than 65535 bytes.
    pub fn push(&mut self, packet: &[u8]) -> Result<Header, CodeError> {
        let limit = usize::from(self.size);
        self.sources.push(packet, limit, self.generation)
    }

    /// Forget everything: the encoder of another generation, which uses the buffers of this one.
    pub fn restart(&mut self, generation: u32) {
        self.generation = generation;
        self.next_seed = 0;
        self.sources.clear();
    }

    /// The number of packets that it took.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.sources.symbols().len() as u16
    }

    /// True if it takes no more packets.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.count() == self.size
    }

    /// Replace `symbol` by that of the next repair packet, a combination of all packets so far, two bytes longer than
    /// the longest of them; the header with which it is to be sent.
    ///
    /// # Errors
    /// If there was no packet yet.
    pub fn repair(&mut self, symbol: &mut Vec<u8>) -> Result<Header, CodeError> {
        if self.sources.symbols().is_empty() {
            return Err(CodeError::Sources {
                sources: 0,
                limit: usize::from(self.size),
            });
        }
        let (generation, count, seed) = (self.generation, self.count(), self.next_seed);
        self.next_seed = seed.wrapping_add(1);
        self.coefficients.clear();
        coefficients::of_generation(
            self.arithmetic.field(),
            generation,
            count,
            seed,
            &mut self.coefficients,
        );
        combine(
            self.arithmetic,
            self.sources.symbols().iter().map(Vec::as_slice),
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
}

pub(crate) fn check_size(size: u16) -> Result<(), CodeError> {
    match size {
        2..=MOST_SOURCES => Ok(()),
        _ => Err(CodeError::GenerationSize(usize::from(size))),
    }
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
    let longest = terms
        .iter()
        .map(|term| term.source.len())
        .max()
        .unwrap_or(0);
    sum.clear();
    extend_with_zeros(sum, longest);
    arithmetic.add_products(sum, &mut terms);
    spare.give_back(terms);
}
