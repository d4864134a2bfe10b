// SPDX-License-Identifier: Apache-2.0
//! Headers of packets between encoder and decoder.
//!
//! All numbers are big-endian. The upper four bits of byte 0 are the [`VERSION`], byte 1 is 0.
//!
//! | packet | byte 0 | bytes 2, 3 | bytes 4 to 7 | bytes 8 to 11 | then |
//! |---|---|---|---|---|---|
//! | systematic | 0xb0 | index | generation | | the packet |
//! | repair | 0xb1 | number of sources | generation | seed | the symbol |
//! | recoded | 0xb2 | number of sources | generation | | a coefficient for each source, the symbol |
//! | window source | 0xb3 | 0 | source number | | the packet |
//! | window repair | 0xb4 | number of sources | first source number | seed | the symbol |

use crate::errors::HeaderError;

/// The version of these headers. Any change to them, or to the code, gets another one, up to 15; 10 was the one before.
pub const VERSION: u8 = 11;

const SYSTEMATIC: u8 = VERSION << 4;
const REPAIR: u8 = SYSTEMATIC | 1;
const RECODED: u8 = SYSTEMATIC | 2;
const WINDOW_SOURCE: u8 = SYSTEMATIC | 3;
const WINDOW_REPAIR: u8 = SYSTEMATIC | 4;

/// What a packet says about itself. Any values are possible in one that was received; decoders check them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Header {
    /// A packet as it was, of a generation.
    Systematic {
        /// Number of the generation.
        generation: u32,
        /// Number of the packet in its generation, from 0.
        index: u16,
    },
    /// A combination of the first `count` packets of a generation.
    Repair {
        /// Number of the generation.
        generation: u32,
        /// How many packets are combined.
        count: u16,
        /// What the coefficients follow from.
        seed: u32,
    },
    /// A combination whose coefficients follow the header, one byte for each of the first `count` packets.
    Recoded {
        /// Number of the generation.
        generation: u32,
        /// How many coefficients follow.
        count: u16,
    },
    /// A packet as it was, of an endless stream.
    WindowSource {
        /// Its number; after 2^32 - 1 comes 0.
        id: u32,
    },
    /// A combination of `count` packets of a stream.
    WindowRepair {
        /// Number of the first packet.
        first: u32,
        /// How many packets are combined.
        count: u16,
        /// What the coefficients follow from.
        seed: u32,
    },
}

impl Header {
    /// Split a packet into header and rest.
    ///
    /// # Errors
    /// If the packet does not begin with a header.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), HeaderError> {
        let short = |needed| HeaderError::Short {
            length: packet.len(),
            needed,
        };
        let (Some([kind, reserved]), Some(number), Some(block)) =
            (packet.first_chunk(), array(packet, 2), array(packet, 4))
        else {
            return Err(short(8));
        };
        if *reserved != 0 {
            return Err(HeaderError::Kind(*kind, *reserved));
        }
        let (number, block) = (u16::from_be_bytes(number), u32::from_be_bytes(block));
        let seed = array(packet, 8).map(u32::from_be_bytes).ok_or(short(12));
        let header = match *kind {
            SYSTEMATIC => Self::Systematic {
                generation: block,
                index: number,
            },
            REPAIR => Self::Repair {
                generation: block,
                count: number,
                seed: seed?,
            },
            RECODED => Self::Recoded {
                generation: block,
                count: number,
            },
            WINDOW_SOURCE => Self::WindowSource { id: block },
            WINDOW_REPAIR => Self::WindowRepair {
                first: block,
                count: number,
                seed: seed?,
            },
            _ => return Err(HeaderError::Kind(*kind, *reserved)),
        };
        Ok((header, &packet[header.length()..]))
    }

    /// Append the header's bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (kind, number, block, seed) = match *self {
            Self::Systematic { generation, index } => (SYSTEMATIC, index, generation, None),
            Self::Repair {
                generation,
                count,
                seed,
            } => (REPAIR, count, generation, Some(seed)),
            Self::Recoded { generation, count } => (RECODED, count, generation, None),
            Self::WindowSource { id } => (WINDOW_SOURCE, 0, id, None),
            Self::WindowRepair { first, count, seed } => (WINDOW_REPAIR, count, first, Some(seed)),
        };
        out.extend_from_slice(&[kind, 0]);
        out.extend_from_slice(&number.to_be_bytes());
        out.extend_from_slice(&block.to_be_bytes());
        if let Some(seed) = seed {
            out.extend_from_slice(&seed.to_be_bytes());
        }
    }

    /// Its length in bytes: 8, or 12 with a seed. The coefficients of a recoded packet are not included.
    #[must_use]
    pub fn length(&self) -> usize {
        match self {
            Self::Repair { .. } | Self::WindowRepair { .. } => 12,
            _ => 8,
        }
    }
}

fn array<const N: usize>(packet: &[u8], at: usize) -> Option<[u8; N]> {
    packet.get(at..)?.first_chunk().copied()
}
