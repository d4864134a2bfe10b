// SPDX-License-Identifier: Apache-2.0
//! Kernels for x86-64.

use std::arch::asm;
use std::arch::x86_64::{
    __m128i, __m256i, _mm_and_si128, _mm_loadu_si128, _mm_set1_epi8, _mm_setzero_si128,
    _mm_shuffle_epi8, _mm_srli_epi64, _mm_storeu_si128, _mm_xor_si128, _mm256_and_si256,
    _mm256_broadcastsi128_si256, _mm256_loadu_si256, _mm256_set1_epi8, _mm256_set1_epi64x,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256,
    _mm256_xor_si256,
};

use super::passes;
use crate::{Field, Term};

/// # Safety
/// The processor has SSSE3, the destination 16 bytes or more, and each source reaches to `start + destination.len()`.
#[target_feature(enable = "ssse3")]
pub(super) unsafe fn ssse3(field: Field, destination: &mut [u8], terms: &[Term<'_>], start: usize) {
    /// # Safety
    /// The processor has SSSE3.
    #[inline]
    #[target_feature(enable = "ssse3")]
    #[allow(unsafe_op_in_unsafe_fn)] // before Rust 1.87 all intrinsics were unsafe
    unsafe fn product((low, high): (__m128i, __m128i), bytes: __m128i) -> __m128i {
        let nibble = _mm_set1_epi8(15);
        _mm_xor_si128(
            _mm_shuffle_epi8(low, _mm_and_si128(bytes, nibble)),
            _mm_shuffle_epi8(high, _mm_and_si128(_mm_srli_epi64::<4>(bytes), nibble)),
        )
    }
    // SAFETY: the caller keeps the conditions above, so all addresses lie within their slices; loads and stores need no
    // alignment.
    unsafe {
        passes!(destination, terms, start, 16, _mm_loadu_si128, _mm_storeu_si128, _mm_xor_si128, _mm_and_si128,
            _mm_setzero_si128(), factor => {
                let products = field.products(factor as u8);
                (_mm_loadu_si128(products.low.as_ptr().cast()), _mm_loadu_si128(products.high.as_ptr().cast()))
            }, product);
    }
}

/// # Safety
/// The processor has AVX2, the destination 32 bytes or more, and each source reaches to `start + destination.len()`.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn avx2(field: Field, destination: &mut [u8], terms: &[Term<'_>], start: usize) {
    /// # Safety
    /// The processor has AVX2.
    #[inline]
    #[target_feature(enable = "avx2")]
    #[allow(unsafe_op_in_unsafe_fn)] // before Rust 1.87 all intrinsics were unsafe
    unsafe fn product((low, high): (__m256i, __m256i), bytes: __m256i) -> __m256i {
        let nibble = _mm256_set1_epi8(15);
        _mm256_xor_si256(
            _mm256_shuffle_epi8(low, _mm256_and_si256(bytes, nibble)),
            _mm256_shuffle_epi8(
                high,
                _mm256_and_si256(_mm256_srli_epi64::<4>(bytes), nibble),
            ),
        )
    }
    // SAFETY: the caller keeps the conditions above, so all addresses lie within their slices; loads and stores need no
    // alignment.
    unsafe {
        passes!(destination, terms, start, 32, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_xor_si256,
            _mm256_and_si256, _mm256_setzero_si256(), factor => {
                let products = field.products(factor as u8);
                (
                    _mm256_broadcastsi128_si256(_mm_loadu_si128(products.low.as_ptr().cast())),
                    _mm256_broadcastsi128_si256(_mm_loadu_si128(products.high.as_ptr().cast())),
                )
            }, product);
    }
}

/// # Safety
/// The processor has AVX2 and GFNI, the destination 32 bytes or more, and each source reaches to
/// `start + destination.len()`.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn gfni(field: Field, destination: &mut [u8], terms: &[Term<'_>], start: usize) {
    /// The instruction is in assembly because Rust 1.85 has no stable intrinsic for it.
    ///
    /// # Safety
    /// The processor has AVX2 and GFNI.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn product(matrix: __m256i, bytes: __m256i) -> __m256i {
        let product;
        // SAFETY: the processor has the instruction, which reads and writes the named registers only.
        unsafe {
            asm!("vgf2p8affineqb {product}, {bytes}, {matrix}, 0", product = lateout(ymm_reg) product,
                bytes = in(ymm_reg) bytes, matrix = in(ymm_reg) matrix,
                options(pure, nomem, nostack, preserves_flags));
        }
        product
    }
    // SAFETY: the caller keeps the conditions above, so all addresses lie within their slices; loads and stores need no
    // alignment.
    unsafe {
        passes!(destination, terms, start, 32, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_xor_si256,
            _mm256_and_si256, _mm256_setzero_si256(),
            factor => _mm256_set1_epi64x(field.tables().matrices[factor]), product);
    }
}
