// SPDX-License-Identifier: Apache-2.0
//! The coefficients of repair packets, functions of what their headers say.

use atoll_gf256::Field;
use atoll_random::SplitMix64;

/// The coefficients of a generation's repair packet, one for each of `count` sources.
///
/// As long as `count + seed` is below 256 they are a row of a Cauchy matrix, 1 / (x + y) with x = 255 - seed and
/// y = the source's index. All square submatrices of it are invertible, so that any n of n + w packets decode.
/// Beyond, they are random and not 0: a submatrix is singular with a probability of about 1 / 255.
///
/// They are appended to `coefficients`.
pub(crate) fn of_generation(
    field: Field,
    generation: u32,
    count: u16,
    seed: u32,
    coefficients: &mut Vec<u8>,
) {
    let cauchy = u8::try_from(seed)
        .ok()
        .filter(|row| u16::from(*row) + count <= 255);
    match cauchy {
        Some(row) => coefficients.extend(
            // x and y differ: y < count <= x
            (0..count).map(|index| field.inverse((255 - row) ^ index as u8).unwrap_or(1)),
        ),
        None => random(generation, seed, count, coefficients),
    }
}

/// The coefficients of a sliding window's repair packet.
pub(crate) fn of_window(first: u32, count: u16, seed: u32) -> Vec<u8> {
    let mut coefficients = Vec::with_capacity(usize::from(count) + 7);
    random(first, seed, count, &mut coefficients);
    coefficients
}

fn random(block: u32, seed: u32, count: u16, coefficients: &mut Vec<u8>) {
    let mut draws = SplitMix64::at(&[u64::from(block), u64::from(seed)]);
    let end = coefficients.len() + usize::from(count);
    while coefficients.len() < end {
        // a zero becomes 1: the coefficients 1 are twice as frequent, which costs nothing that could be measured
        coefficients.extend(draws.next_u64().to_le_bytes().map(|byte| byte.max(1)));
    }
    coefficients.truncate(end);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_generation(field: Field, generation: u32, count: u16, seed: u32) -> Vec<u8> {
        let mut coefficients = Vec::new();
        super::of_generation(field, generation, count, seed, &mut coefficients);
        coefficients
    }

    #[test]
    fn coefficients_are_a_promise() {
        // Both ends compute them, perhaps in different versions.
        assert_eq!(of_generation(Field::Aes, 7, 4, 0), [28, 65, 26, 205]);
        assert_eq!(of_generation(Field::Aes, 7, 4, 1000), [39, 69, 86, 47]);
        assert_eq!(of_window(7, 4, 1), [236, 39, 62, 1]);
    }

    #[test]
    fn rows_of_cauchy_have_no_zero_and_no_equal() {
        for count in 1..=255 {
            let mut row = of_generation(Field::Aes, 0, count, u32::from(255 - count));
            row.sort_unstable();
            assert!(row[0] > 0 && row.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}
