// SPDX-License-Identifier: Apache-2.0
//! Random linear network coding behind the interface of block codes.

use crate::block_code::{BlockCode, BlockDecoder, BlockEncoder};
use crate::errors::CodeError;
use crate::generation_decoder::GenerationDecoder;
use crate::generation_encoder::GenerationEncoder;
use crate::header::Header;

/// Random linear network coding in generations of at most `size` packets.
#[derive(Debug, Clone, Copy)]
pub struct Rlnc {
    /// 2 to [`crate::MOST_SOURCES`].
    pub size: u16,
}

impl BlockCode for Rlnc {
    fn encoder(&self, generation: u32) -> Result<Box<dyn BlockEncoder>, CodeError> {
        Ok(Box::new(GenerationEncoder::new(generation, self.size)?))
    }

    fn decoder(
        &self,
        generation: u32,
        longest_packet: usize,
    ) -> Result<Box<dyn BlockDecoder>, CodeError> {
        Ok(Box::new(GenerationDecoder::new(
            generation,
            self.size,
            longest_packet,
        )?))
    }
}

impl BlockEncoder for GenerationEncoder {
    fn push(&mut self, packet: &[u8]) -> Result<Header, CodeError> {
        self.push(packet)
    }

    fn repair(&mut self, symbol: &mut Vec<u8>) -> Result<Header, CodeError> {
        self.repair(symbol)
    }

    fn restart(&mut self, generation: u32) {
        self.restart(generation);
    }
}
