// SPDX-License-Identifier: Apache-2.0
#![doc = include_str!("../README.md")]
#![allow(unsafe_code)]

mod field;
mod kernels;

pub use field::Field;
pub use kernels::Kernel;

/// A slice and the constant that multiplies it.
#[derive(Debug, Clone, Copy)]
pub struct Term<'a> {
    /// Bytes, each an element of the field.
    pub source: &'a [u8],
    /// The constant.
    pub factor: u8,
}

/// A field and the kernel that computes in it.
#[derive(Debug, Clone, Copy)]
pub struct Arithmetic {
    field: Field,
    kernel: Kernel,
}

impl Arithmetic {
    /// Arithmetic in `field` by the fastest kernel of this processor.
    #[must_use]
    pub fn new(field: Field) -> Self {
        let kernel = Kernel::fastest();
        Self { field, kernel }
    }

    /// Arithmetic by a kernel of choice, for tests and measurements. None if the processor has not its instructions.
    #[must_use]
    pub fn with_kernel(field: Field, kernel: Kernel) -> Option<Self> {
        kernel.is_available().then_some(Self { field, kernel })
    }

    /// The field.
    #[must_use]
    pub fn field(&self) -> Field {
        self.field
    }

    /// `destination[i] += factor * source[i]` for each i that both have.
    pub fn add_product(&self, destination: &mut [u8], source: &[u8], factor: u8) {
        let length = destination.len().min(source.len());
        self.kernel.run(
            self.field,
            &mut destination[..length],
            &[Term { source, factor }],
            0,
        );
    }

    /// `destination[i] += factor * source[i]` for each term, all terms in one pass over the destination.
    ///
    /// A source that is shorter than the destination counts as extended by zeros. Bytes of a source beyond the
    /// destination are left out. The order of the terms is changed: the longest is first.
    pub fn add_products(&self, destination: &mut [u8], terms: &mut [Term<'_>]) {
        terms.sort_unstable_by_key(|term| std::cmp::Reverse(term.source.len()));
        let longest = terms
            .first()
            .map_or(0, |term| term.source.len())
            .min(destination.len());
        let (mut start, mut rest) = (0, &*terms);
        while let Some(shortest) = rest.last() {
            // All terms as far as the shortest goes: to its end if all end there, else by whole blocks.
            let shortest = shortest.source.len().min(destination.len());
            let end = if shortest == longest {
                longest
            } else {
                shortest / kernels::BLOCK * kernels::BLOCK
            };
            if start < end {
                self.kernel
                    .run(self.field, &mut destination[start..end], rest, start);
                start = end;
            }
            if end == longest {
                return;
            }
            // Those that end within the next block leave, each after its own rest.
            while let Some((last, others)) = rest.split_last() {
                let length = last.source.len();
                if length >= start + kernels::BLOCK {
                    break;
                }
                if start < length {
                    let length = length.min(destination.len());
                    self.kernel
                        .run(self.field, &mut destination[start..length], &[*last], start);
                }
                rest = others;
            }
        }
    }

    /// `row[i] *= factor`.
    pub fn scale(&self, row: &mut [u8], factor: u8) {
        const PART: usize = 64; // rows are short, and zeros have their price
        for part in row.chunks_mut(PART) {
            let products = &mut [0; PART][..part.len()];
            self.add_product(products, part, factor);
            part.copy_from_slice(products);
        }
    }
}
