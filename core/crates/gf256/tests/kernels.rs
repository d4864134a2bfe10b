// SPDX-License-Identifier: Apache-2.0
//! All kernels have the results of shift and exclusive or, whatever the lengths, offsets and constants.

use atoll_gf256::{Arithmetic, Field, Kernel, Term};
use proptest::prelude::*;

/// One term of a random case: where its slice begins in the common bytes, its length, its constant.
type Slice = (usize, usize, u8);

fn expected(field: Field, destination: &[u8], bytes: &[u8], slices: &[Slice]) -> Vec<u8> {
    let mut sums = destination.to_vec();
    for (offset, length, factor) in slices {
        for (sum, byte) in sums.iter_mut().zip(&bytes[*offset..offset + length]) {
            *sum ^= field.mul(*factor, *byte);
        }
    }
    sums
}

fn check(field: Field, bytes: &[u8], (offset, length): (usize, usize), slices: &[Slice]) {
    let expected = expected(field, &bytes[offset..offset + length], bytes, slices);
    for kernel in Kernel::available() {
        let arithmetic = Arithmetic::with_kernel(field, kernel).expect("it is available");
        // what is around the destination must stay
        let mut all = bytes.to_vec();
        let mut terms: Vec<Term> = slices
            .iter()
            .map(|(offset, length, factor)| Term {
                source: &bytes[*offset..offset + length],
                factor: *factor,
            })
            .collect();
        arithmetic.add_products(&mut all[offset..offset + length], &mut terms);
        assert_eq!(&all[offset..offset + length], &expected[..], "{kernel:?}");
        assert_eq!(&all[..offset], &bytes[..offset], "{kernel:?}");
        assert_eq!(
            &all[offset + length..],
            &bytes[offset + length..],
            "{kernel:?}"
        );
    }
}

fn bytes() -> Vec<u8> {
    (0_u32..4096)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn kernels_agree_on_any_lengths_offsets_and_constants(
        field in prop_oneof![Just(Field::Aes), Just(Field::Rfc8681)],
        destination in (0_usize..64, 0_usize..1600),
        slices in prop::collection::vec((0_usize..64, 0_usize..1600, any::<u8>()), 0..20),
    ) {
        check(field, &bytes(), destination, &slices);
    }

    #[test]
    fn kernels_agree_on_equal_lengths(
        destination in (0_usize..64, 0_usize..1600),
        factors in prop::collection::vec((0_usize..64, any::<u8>()), 0..70),
    ) {
        let slices: Vec<Slice> = factors.iter().map(|(offset, factor)| (*offset, destination.1, *factor)).collect();
        check(Field::Aes, &bytes(), destination, &slices);
    }
}

#[test]
fn kernels_agree_on_every_short_length() {
    for length in 0..600 {
        check(
            Field::Aes,
            &bytes(),
            (1, length),
            &[(3, length, 0x8e), (7, length, 1), (11, length, 0)],
        );
    }
}

#[test]
fn kernels_agree_on_every_constant() {
    for factor in 0..=255 {
        for field in [Field::Aes, Field::Rfc8681] {
            check(field, &bytes(), (0, 300), &[(0, 300, factor)]);
        }
    }
}

#[test]
fn rows_are_scaled() {
    let mut row = bytes();
    let arithmetic = Arithmetic::new(Field::Aes);
    arithmetic.scale(&mut row, 0x53);
    arithmetic.scale(&mut row, 0xca); // its inverse (FIPS 197)
    assert_eq!(row, bytes());
}

#[test]
fn this_processor_has_a_kernel() {
    let available: Vec<Kernel> = Kernel::available().collect();
    assert_eq!(available.first(), Some(&Kernel::Tables));
    assert_eq!(available.last(), Some(&Kernel::fastest()));
}
