// SPDX-License-Identifier: Apache-2.0
//! The encoder of one generation.

use atoll_gf256::{Arithmetic, Field, Term};

use crate::errors::CodeError;
use crate::header::Header;
use crate::{MOST_SOURCES, coefficients, symbol};

/// Takes the packets of one generation and combines them into repair packets.
#[derive(Debug)]
pub struct GenerationEncoder {
    arithmetic: Arithmetic,
    generation: u32,
    size: u16,
    symbols: Vec<Vec<u8>>,
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
            symbols: Vec::with_capacity(usize::from(size)),
            next_seed: 0,
        })
    }

    /// Take the next packet; the header with which it is to be sent.
    ///
    /// # Errors
    /// If the generation is full, or the packet is longer than 65535 bytes.
    pub fn push(&mut self, packet: &[u8]) -> Result<Header, CodeError> {
        let limit = usize::from(self.size);
        symbol::push_source(&mut self.symbols, packet, limit, self.generation)
    }

    /// The number of packets that it took.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.symbols.len() as u16
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
        if self.symbols.is_empty() {
            return Err(CodeError::Sources {
                sources: 0,
                limit: usize::from(self.size),
            });
        }
        let (generation, count, seed) = (self.generation, self.count(), self.next_seed);
        self.next_seed = seed.wrapping_add(1);
        let coefficients =
            coefficients::of_generation(self.arithmetic.field(), generation, count, seed);
        combine(
            self.arithmetic,
            self.symbols.iter().map(Vec::as_slice),
            &coefficients,
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
    sum: &mut Vec<u8>,
) {
    let mut terms: Vec<Term> = symbols
        .zip(coefficients)
        .map(|(source, factor)| Term {
            source,
            factor: *factor,
        })
        .collect();
    let longest = terms
        .iter()
        .map(|term| term.source.len())
        .max()
        .unwrap_or(0);
    sum.clear();
    sum.resize(longest, 0);
    arithmetic.add_products(sum, &mut terms);
}
