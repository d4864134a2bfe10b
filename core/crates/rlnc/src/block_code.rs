// SPDX-License-Identifier: Apache-2.0
//! The interface of block codes.

use std::fmt;

use crate::errors::CodeError;
use crate::header::Header;

/// A systematic code of generations: packets are sent as they are, followed by repair packets.
///
/// To add a code, implement the three traits of this module for it. Headers are the same for all codes: a source has
/// [`Header::Systematic`], a repair packet [`Header::Repair`], whose `seed` the code may use as it likes, for instance as
/// the number of the repair packet. Both ends are configured with the same code.
pub trait BlockCode: fmt::Debug + Send {
    /// The encoder of a generation.
    ///
    /// # Errors
    /// If the code has no generations of its configured size.
    fn encoder(&self, generation: u32) -> Result<Box<dyn BlockEncoder>, CodeError>;

    /// The decoder of a generation, for packets of at most `longest_packet` bytes.
    ///
    /// # Errors
    /// If the code has no generations of its configured size.
    fn decoder(
        &self,
        generation: u32,
        longest_packet: usize,
    ) -> Result<Box<dyn BlockDecoder>, CodeError>;
}

/// The encoder of one generation.
pub trait BlockEncoder: fmt::Debug + Send {
    /// Take the next packet; the header with which it is to be sent.
    ///
    /// # Errors
    /// If the generation takes no more packets, or the packet is too long.
    fn push(&mut self, packet: &[u8]) -> Result<Header, CodeError>;

    /// Replace `symbol` by that of the next repair packet; the header with which it is to be sent.
    ///
    /// # Errors
    /// If there was no packet yet, or the code has no more repair packets.
    fn repair(&mut self, symbol: &mut Vec<u8>) -> Result<Header, CodeError>;

    /// Forget everything: the encoder of another generation, which uses the buffers of this one.
    fn restart(&mut self, generation: u32);
}

/// The decoder of one generation.
///
/// It takes packets in any order and any number of times. Everything may come from an attacker: errors are values, and
/// memory is bounded by the size of a generation and the longest packet.
///
/// # Damaged packets
/// There is no checksum. A packet that was altered on its way and has a valid header makes the packets wrong that are
/// recovered with it; only some of them are found out ([`CodeError::Damaged`]). Where packets can be damaged unnoticed,
/// the channel needs a checksum, such as UDP's. Packets that arrived themselves are never affected.
pub trait BlockDecoder: fmt::Debug + Send {
    /// Take a packet as it was sent, which the caller delivers itself, at once.
    ///
    /// # Errors
    /// If its number or length is not one of this generation, or what it completes is damaged.
    fn systematic(&mut self, index: u16, packet: &[u8]) -> Result<Progress, CodeError>;

    /// Take a repair packet, by the fields of its header.
    ///
    /// # Errors
    /// If its fields or length are not those of this generation, or what it completes is damaged.
    fn repair(&mut self, count: u16, seed: u32, symbol: &[u8]) -> Result<Progress, CodeError>;

    /// The packets recovered since the last call, with their numbers.
    fn recovered(&mut self) -> Vec<(u16, Vec<u8>)> {
        let mut recovered = Vec::new();
        self.take_recovered(&mut |index, packet| recovered.push((index, packet.to_vec())));
        recovered
    }

    /// Give the packets recovered since the last call to `take`, with their numbers, uncopied.
    fn take_recovered(&mut self, take: &mut dyn FnMut(u16, &[u8]));

    /// Forget everything: the decoder of another generation, which uses the buffers of this one.
    fn restart(&mut self, generation: u32);

    /// How many useful packets are needed until all sources seen so far are known, the rank deficit. Of sources that no
    /// packet spoke of nothing is known.
    fn missing(&self) -> u16;
}

/// What a packet was good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It said something new.
    Useful,
    /// It followed from what was known: a duplicate, or more than needed.
    Redundant,
}

impl Progress {
    pub(crate) fn of(useful: bool) -> Self {
        if useful {
            Self::Useful
        } else {
            Self::Redundant
        }
    }
}
