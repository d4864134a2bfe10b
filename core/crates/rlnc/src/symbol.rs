// SPDX-License-Identifier: Apache-2.0
//! A symbol is what is coded: two bytes with the length of a packet, and the packet. Zeros after it change nothing.

use crate::Header;
use crate::LONGEST_PACKET;
use crate::errors::CodeError;

/// Bytes of the length.
pub(crate) const PREFIX: usize = 2;

pub(crate) fn of_packet(packet: &[u8]) -> Result<Vec<u8>, CodeError> {
    let length = u16::try_from(packet.len()).map_err(|_| CodeError::LongPacket(packet.len()))?;
    let mut symbol = Vec::with_capacity(PREFIX + packet.len());
    symbol.extend_from_slice(&length.to_be_bytes());
    symbol.extend_from_slice(packet);
    Ok(symbol)
}

/// Take a packet as the next source of a generation that has at most `limit`; the header with which it is to be sent.
pub(crate) fn push_source(
    symbols: &mut Vec<Vec<u8>>,
    packet: &[u8],
    limit: usize,
    generation: u32,
) -> Result<Header, CodeError> {
    let index = symbols.len();
    if index == limit {
        let sources = index + 1;
        return Err(CodeError::Sources { sources, limit });
    }
    symbols.push(of_packet(packet)?);
    Ok(Header::Systematic {
        generation,
        index: index as u16,
    })
}

/// Cut off the zeros after the packet.
pub(crate) fn trimmed(mut symbol: Vec<u8>) -> Result<Vec<u8>, CodeError> {
    let [high, low, ..] = *symbol.as_slice() else {
        return Err(CodeError::Damaged);
    };
    let end = PREFIX + usize::from(u16::from_be_bytes([high, low]));
    if symbol.len() < end || symbol[end..].iter().any(|byte| *byte != 0) {
        return Err(CodeError::Damaged);
    }
    symbol.truncate(end);
    Ok(symbol)
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
