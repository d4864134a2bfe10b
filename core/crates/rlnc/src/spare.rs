// SPDX-License-Identifier: Apache-2.0
//! Buffers that are used again, since allocating them takes as long as computing with short ones.

use atoll_gf256::Term;

/// Empty buffers.
#[derive(Debug, Default)]
pub(crate) struct SpareBuffers(Vec<Vec<u8>>);

impl SpareBuffers {
    /// An empty one.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let mut buffer = self.0.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    pub(crate) fn give_back(&mut self, buffer: Vec<u8>) {
        self.0.push(buffer);
    }
}

/// The memory of a list of terms while there is none.
#[derive(Debug, Default)]
pub(crate) struct SpareTerms(Vec<Term<'static>>);

impl SpareTerms {
    /// An empty list for terms of any life.
    pub(crate) fn take<'a>(&mut self) -> Vec<Term<'a>> {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn give_back(&mut self, mut terms: Vec<Term<'_>>) {
        terms.clear();
        // Without elements no life is prolonged; the standard library collects such a list in its own memory.
        self.0 = terms
            .into_iter()
            .map(|_| Term {
                source: &[],
                factor: 0,
            })
            .collect();
    }
}

/// The length of the longest source.
pub(crate) fn longest(terms: &[Term<'_>]) -> usize {
    let lengths = terms.iter().map(|term| term.source.len());
    lengths.max().unwrap_or(0)
}

/// Append so many zeros, by copying them: `resize` of a buffer that has been used stores byte by byte.
pub(crate) fn extend_with_zeros(buffer: &mut Vec<u8>, count: usize) {
    const ZEROS: [u8; 2048] = [0; 2048];
    let mut remaining = count;
    while remaining > 0 {
        let part = remaining.min(ZEROS.len());
        buffer.extend_from_slice(&ZEROS[..part]);
        remaining -= part;
    }
}
