// SPDX-License-Identifier: Apache-2.0
//! The errors of this crate.

use crate::{LONGEST_PACKET, MOST_SOURCES};

/// Bytes that are no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The packet ends within its header.
    #[error("{length} bytes: a header of this kind has {needed}")]
    Short {
        /// Bytes of the packet.
        length: usize,
        /// Bytes of the header.
        needed: usize,
    },
    /// The first byte is that of no kind, or the second one is not 0.
    #[error("the first two bytes are {0:02x} {1:02x}: no header of this version")]
    Kind(u8, u8),
}

/// Packets that a code cannot take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodeError {
    /// A packet longer than the length inside its symbol can be.
    #[error("a packet of {0} bytes: the longest one has {LONGEST_PACKET}")]
    LongPacket(usize),
    /// A packet or symbol longer than the decoder takes.
    #[error("a symbol of {length} bytes: this decoder takes {limit}")]
    LongSymbol {
        /// Bytes of the symbol.
        length: usize,
        /// The most that are taken.
        limit: usize,
    },
    /// A symbol without room for the length of a packet.
    #[error("a symbol of {0} bytes: the shortest one has 2")]
    ShortSymbol(usize),
    /// More sources than the encoder or decoder has room for, or none.
    #[error("{sources} sources: this code has 1 to {limit}")]
    Sources {
        /// The number of sources.
        sources: usize,
        /// The most that there can be.
        limit: usize,
    },
    /// A generation size that is not supported.
    #[error("a generation of {0} packets: 2 to {MOST_SOURCES} are possible")]
    GenerationSize(usize),
    /// The encoder's generation has begun its repair packets, which depend on all sources.
    #[error("this generation has begun its repair packets and takes no more sources")]
    Closed,
    /// A block code has no more repair packets.
    #[error("this code has {0} repair packets for a generation")]
    Repairs(usize),
    /// What was decoded is no packet: a packet of the generation was damaged, or belongs to another one.
    #[error("the generation contradicts itself: one of its packets was damaged on the way")]
    Damaged,
}
