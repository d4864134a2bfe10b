// SPDX-License-Identifier: Apache-2.0
//! The kernels, and which of them this processor has. All unsafe code of the crate is below.

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::{Field, Term};

/// Bytes of the destination that a kernel holds in registers while it goes through the terms.
pub(crate) const BLOCK: usize = 256;

/// A way to multiply and add. All of them have the same results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kernel {
    /// A table look-up for each nibble of each byte, on any processor.
    Tables,
    /// Shuffles of 16 bytes (x86-64 with SSSE3).
    Ssse3,
    /// Shuffles of 32 bytes (x86-64 with AVX2).
    Avx2,
    /// Products with matrices of bits, 32 bytes at a time (x86-64 with AVX2 and GFNI).
    Gfni,
    /// Shuffles of 16 bytes (`AArch64`).
    Neon,
}

impl Kernel {
    /// From the slowest to the fastest.
    const ALL: [Self; 5] = [
        Self::Tables,
        Self::Neon,
        Self::Ssse3,
        Self::Avx2,
        Self::Gfni,
    ];

    /// The fastest of this processor.
    #[must_use]
    pub fn fastest() -> Self {
        Self::available().last().unwrap_or(Self::Tables)
    }

    /// Those of this processor, from the slowest to the fastest.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|kernel| kernel.is_available())
    }

    pub(crate) fn is_available(self) -> bool {
        match self {
            Self::Tables => true,
            #[cfg(target_arch = "x86_64")]
            Self::Ssse3 => is_x86_feature_detected!("ssse3"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Gfni => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("gfni"),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => true, // part of the architecture's base
            #[allow(unreachable_patterns)] // which patterns are left depends on the processor
            _ => false,
        }
    }

    /// `destination[i] += factor * source[start + i]` for all terms. Only for kernels that are available.
    ///
    /// # Panics
    /// If a source ends before `start + destination.len()`.
    pub(crate) fn run(
        self,
        field: Field,
        destination: &mut [u8],
        terms: &[Term<'_>],
        start: usize,
    ) {
        let end = start + destination.len();
        assert!(
            terms.iter().all(|term| term.source.len() >= end),
            "a source ends before its destination"
        );
        match self {
            // SAFETY: `Arithmetic` holds only kernels that are available, and all sources reach to `end`.
            #[cfg(target_arch = "x86_64")]
            Self::Ssse3 if destination.len() >= 16 => unsafe {
                x86::ssse3(field, destination, terms, start);
            },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 if destination.len() >= 32 => unsafe {
                x86::avx2(field, destination, terms, start);
            },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Gfni if destination.len() >= 32 => unsafe {
                x86::gfni(field, destination, terms, start);
            },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Self::Neon if destination.len() >= 16 => unsafe {
                neon::neon(field, destination, terms, start);
            },
            _ => tables(field, destination, terms, start),
        }
    }
}

/// The reference, and the kernel for slices shorter than a register.
fn tables(field: Field, destination: &mut [u8], terms: &[Term<'_>], start: usize) {
    for term in terms {
        let products = field.products(term.factor);
        for (sum, byte) in destination.iter_mut().zip(&term.source[start..]) {
            *sum ^= products.of(*byte);
        }
    }
}

/// Of a register of w bytes `MASK[32 - w + n..]` keeps the last n.
pub(crate) static MASK: [u8; 64] = {
    let mut mask = [0; 64];
    let mut byte = 32;
    while byte < 64 {
        mask[byte] = 0xff;
        byte += 1;
    }
    mask
};

/// The body of a kernel for registers of `$width` bytes.
///
/// Whole blocks first, eight registers of the destination at a time, then single registers. The rest is computed in the
/// last whole register of the slices, whose bytes that are done already are masked out of the sum.
macro_rules! passes {
    ($destination:ident, $terms:ident, $start:ident, $width:literal, $load:path, $store:path, $xor:path, $and:path,
     $zero:expr, $factor:ident => $constant:expr, $product:path) => {{
        const REGISTERS: usize = 8;
        let length = $destination.len();
        let to = $destination.as_mut_ptr();
        let mut at = 0;
        while at + REGISTERS * $width <= length {
            let mut sums = [$zero; REGISTERS];
            for (register, sum) in sums.iter_mut().enumerate() {
                *sum = $load(to.add(at + register * $width).cast());
            }
            for term in $terms {
                let $factor = usize::from(term.factor);
                let constant = $constant;
                let from = term.source.as_ptr().add($start + at);
                for (register, sum) in sums.iter_mut().enumerate() {
                    *sum = $xor(
                        *sum,
                        $product(constant, $load(from.add(register * $width).cast())),
                    );
                }
            }
            for (register, sum) in sums.iter().enumerate() {
                $store(to.add(at + register * $width).cast(), *sum);
            }
            at += REGISTERS * $width;
        }
        while at < length {
            let rest = (length - at).min($width);
            at = at + rest - $width;
            let mut sum = $zero;
            for term in $terms {
                let $factor = usize::from(term.factor);
                let constant = $constant;
                sum = $xor(
                    sum,
                    $product(
                        constant,
                        $load(term.source.as_ptr().add($start + at).cast()),
                    ),
                );
            }
            let mask = $load(super::MASK.as_ptr().add(32 - $width + rest).cast());
            let sum = $and(sum, mask);
            $store(to.add(at).cast(), $xor($load(to.add(at).cast()), sum));
            at += $width;
        }
    }};
}
pub(crate) use passes;
