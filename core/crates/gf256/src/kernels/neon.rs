// SPDX-License-Identifier: Apache-2.0
//! The kernel for `AArch64`.

use std::arch::aarch64::{
    uint8x16_t, vandq_u8, vdupq_n_u8, veorq_u8, vld1q_u8, vqtbl1q_u8, vshrq_n_u8, vst1q_u8,
};

use super::passes;
use crate::{Field, Term};

/// # Safety
/// The destination has 16 bytes or more, and each source reaches to `start + destination.len()`.
pub(super) unsafe fn neon(field: Field, destination: &mut [u8], terms: &[Term<'_>], start: usize) {
    /// # Safety
    /// NEON is a part of the architecture's base.
    #[inline]
    #[target_feature(enable = "neon")]
    #[allow(unsafe_op_in_unsafe_fn)] // before Rust 1.87 all intrinsics were unsafe
    unsafe fn product((low, high): (uint8x16_t, uint8x16_t), bytes: uint8x16_t) -> uint8x16_t {
        veorq_u8(
            vqtbl1q_u8(low, vandq_u8(bytes, vdupq_n_u8(15))),
            vqtbl1q_u8(high, vshrq_n_u8::<4>(bytes)),
        )
    }
    // SAFETY: the caller keeps the conditions above, so all addresses lie within their slices; loads and stores need no
    // alignment.
    unsafe {
        passes!(destination, terms, start, 16, vld1q_u8, vst1q_u8, veorq_u8, vandq_u8, vdupq_n_u8(0), factor => {
            let products = field.products(factor as u8);
            (vld1q_u8(products.low.as_ptr()), vld1q_u8(products.high.as_ptr()))
        }, product);
    }
}
