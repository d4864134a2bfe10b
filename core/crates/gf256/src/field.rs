// SPDX-License-Identifier: Apache-2.0
//! The two fields, and their tables, made at compile time.

/// A field of 256 elements. Addition is the exclusive or in all of them; multiplication depends on the polynomial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field {
    /// x^8 + x^4 + x^3 + x + 1 (0x11B), the polynomial of AES and of the GFNI instructions.
    Aes,
    /// x^8 + x^4 + x^3 + x^2 + 1 (0x11D), the polynomial of RFC 8681, section 3.7.1, and of RFC 5510.
    Rfc8681,
}

/// What multiplies by one constant: a product is linear in its bits, so it is the sum of those of the two nibbles.
#[repr(C, align(32))]
#[derive(Clone, Copy)]
pub(crate) struct Products {
    pub(crate) low: [u8; 16],
    pub(crate) high: [u8; 16],
}

impl Products {
    pub(crate) fn of(&self, byte: u8) -> u8 {
        self.low[usize::from(byte & 15)] ^ self.high[usize::from(byte >> 4)]
    }
}

pub(crate) struct Tables {
    products: [Products; 256],
    inverse: [u8; 256],
    /// Each multiplication as a matrix of bits, as the instruction `gf2p8affineqb` reads it.
    pub(crate) matrices: [i64; 256],
}

static AES: Tables = Tables::new(0x1b);
static RFC8681: Tables = Tables::new(0x1d);

impl Field {
    /// The product of two elements.
    #[must_use]
    pub fn mul(self, one: u8, other: u8) -> u8 {
        self.products(one).of(other)
    }

    /// The element whose product with this one is 1. None for 0.
    #[must_use]
    pub fn inverse(self, element: u8) -> Option<u8> {
        (element != 0).then(|| self.tables().inverse[usize::from(element)])
    }

    pub(crate) fn products(self, factor: u8) -> &'static Products {
        &self.tables().products[usize::from(factor)]
    }

    pub(crate) fn tables(self) -> &'static Tables {
        match self {
            Self::Aes => &AES,
            Self::Rfc8681 => &RFC8681,
        }
    }
}

impl Tables {
    const fn new(polynomial: u8) -> Self {
        let mut tables = Self {
            products: [Products {
                low: [0; 16],
                high: [0; 16],
            }; 256],
            inverse: [0; 256],
            matrices: [0; 256],
        };
        let mut factor = 0;
        while factor < 256 {
            let mut nibble = 0;
            while nibble < 16 {
                tables.products[factor].low[nibble] = mul(factor as u8, nibble as u8, polynomial);
                tables.products[factor].high[nibble] =
                    mul(factor as u8, (nibble as u8) << 4, polynomial);
                nibble += 1;
            }
            tables.matrices[factor] = matrix(factor as u8, polynomial);
            tables.inverse[factor] = inverse(factor as u8, polynomial);
            factor += 1;
        }
        tables
    }
}

/// By shift and exclusive or.
const fn mul(one: u8, other: u8, polynomial: u8) -> u8 {
    let (mut product, mut shifted, mut bits) = (0, one, other);
    while bits > 0 {
        if bits & 1 == 1 {
            product ^= shifted;
        }
        shifted = (shifted << 1) ^ if shifted & 0x80 == 0 { 0 } else { polynomial };
        bits >>= 1;
    }
    product
}

/// By the 254th power; 0 for 0.
const fn inverse(element: u8, polynomial: u8) -> u8 {
    let (mut power, mut inverse, mut bit) = (element, 1, 1);
    while bit < 8 {
        power = mul(power, power, polynomial);
        inverse = mul(inverse, power, polynomial);
        bit += 1;
    }
    inverse
}

/// Bit i of a product is the parity of the factor's row i and the other byte; `gf2p8affineqb` has row i in byte 7 - i
/// (Intel, "Architecture Instruction Set Extensions", `GF2P8AFFINEQB`).
const fn matrix(factor: u8, polynomial: u8) -> i64 {
    let (mut matrix, mut column) = (0, 0);
    while column < 8 {
        let product = mul(factor, 1 << column, polynomial);
        let mut row = 0;
        while row < 8 {
            if product >> row & 1 == 1 {
                matrix |= 1 << (8 * (7 - row) + column);
            }
            row += 1;
        }
        column += 1;
    }
    matrix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_those_of_published_examples() {
        // FIPS 197, section 4.2: {57} x {83} = {c1}, {57} x {13} = {fe}
        assert_eq!(Field::Aes.mul(0x57, 0x83), 0xc1);
        assert_eq!(Field::Aes.mul(0x57, 0x13), 0xfe);
        // RFC 8681's field: 2 generates it, 2^8 = x^4 + x^3 + x^2 + 1
        assert_eq!(Field::Rfc8681.mul(0x80, 2), 0x1d);
    }

    #[test]
    fn both_are_fields() {
        for (field, polynomial) in [(Field::Aes, 0x1b), (Field::Rfc8681, 0x1d)] {
            for one in 0..=255 {
                assert_eq!(
                    field.inverse(one).map(|inverse| field.mul(one, inverse)),
                    (one > 0).then_some(1)
                );
                for other in 0..=255 {
                    assert_eq!(field.mul(one, other), field.mul(other, one));
                    assert_eq!(field.mul(one, other), mul(one, other, polynomial));
                    assert_eq!(
                        field.mul(one, other ^ 3),
                        field.mul(one, other) ^ field.mul(one, 3)
                    );
                }
            }
        }
    }
}
