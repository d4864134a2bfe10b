// SPDX-License-Identifier: Apache-2.0
//! A symbol is what is coded: two bytes with the length of a packet, and the packet. Zeros after it change nothing.

use crate::Header;
use crate::LONGEST_PACKET;
use crate::errors::CodeError;

/// Bytes of the length.
pub(crate) const PREFIX: usize = 2;

pub(crate) fn of_packet(packet: &[u8]) -> Result<Vec<u8>, CodeError> {
    let mut symbol = Vec::with_capacity(PREFIX + packet.len());
    fill(&mut symbol, packet)?;
    Ok(symbol)
}

/// Replace `symbol` by that of a packet; as it was if the packet is too long.
pub(crate) fn fill(symbol: &mut Vec<u8>, packet: &[u8]) -> Result<(), CodeError> {
    let length = check_packet(packet)?;
    symbol.clear();
    symbol.extend_from_slice(&length.to_be_bytes());
    symbol.extend_from_slice(packet);
    Ok(())
}

/// A packet's length, if it has a symbol.
pub(crate) fn check_packet(packet: &[u8]) -> Result<u16, CodeError> {
    u16::try_from(packet.len()).map_err(|_| CodeError::LongPacket(packet.len()))
}

/// The symbols of an encoder's generation, and buffers for those of the next one.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    symbols: Vec<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

impl Sources {
    /// Take a packet as the next source of a generation that has at most `limit`; the header with which it is to be sent.
    pub(crate) fn push(
        &mut self,
        packet: &[u8],
        limit: usize,
        generation: u32,
    ) -> Result<Header, CodeError> {
        let index = self.symbols.len();
        if index == limit {
            let sources = index + 1;
            return Err(CodeError::Sources { sources, limit });
        }
        let mut symbol = self.spare.pop().unwrap_or_default();
        fill(&mut symbol, packet)?;
        self.symbols.push(symbol);
        Ok(Header::Systematic {
            generation,
            index: index as u16,
        })
    }

    pub(crate) fn symbols(&self) -> &[Vec<u8>] {
        &self.symbols
    }

    /// None is left; their buffers stay.
    pub(crate) fn clear(&mut self) {
        self.spare.append(&mut self.symbols);
    }
}

/// Cut off the zeros after the packet.
pub(crate) fn trim(symbol: &mut Vec<u8>) -> Result<(), CodeError> {
    let [high, low, ..] = *symbol.as_slice() else {
        return Err(CodeError::Damaged);
    };
    let end = PREFIX + usize::from(u16::from_be_bytes([high, low]));
    if symbol.len() < end || symbol[end..].iter().any(|byte| *byte != 0) {
        return Err(CodeError::Damaged);
    }
    symbol.truncate(end);
    Ok(())
}

pub(crate) fn packet(symbol: &[u8]) -> &[u8] {
    symbol.get(PREFIX..).unwrap_or_default()
}

/// A received symbol's length, if the decoder takes it.
pub(crate) fn check_length(length: usize, longest_packet: usize) -> Result<(), CodeError> {
    let limit = PREFIX + longest_packet.min(LONGEST_PACKET) + 1; // block codes may have even lengths only
    match length {
        0..PREFIX => Err(CodeError::ShortSymbol(length)),
        _ if length > limit => Err(CodeError::LongSymbol { length, limit }),
        _ => Ok(()),
    }
}
