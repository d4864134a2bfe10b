// SPDX-License-Identifier: Apache-2.0
//! Reed-Solomon behind the interface of block codes, computed by the crate `reed-solomon-simd`.

use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

use crate::block_code::{BlockCode, BlockDecoder, BlockEncoder, Progress};
use crate::errors::CodeError;
use crate::generation_encoder::{check_size, check_sources};
use crate::header::Header;
use crate::symbol::{self, Sources};

/// Reed-Solomon over GF(2^16): any n of n + w packets decode, for all n and w.
///
/// The repair packets of a generation are computed together, so the first one ends the generation. A generation is
/// recovered at once, when as many packets are there as it has sources. Symbols have an even length.
#[derive(Debug, Clone, Copy)]
pub struct ReedSolomon {
    /// The most packets of a generation, 2 to [`crate::MOST_SOURCES`].
    pub size: u16,
    /// Repair packets of a generation, 1 to [`crate::MOST_SOURCES`].
    pub repairs: u16,
}

#[derive(Debug)]
struct Encoder {
    code: ReedSolomon,
    generation: u32,
    sources: Sources,
    repairs: Option<Vec<Vec<u8>>>,
    sent: usize,
}

#[derive(Debug)]
struct Decoder {
    code: ReedSolomon,
    longest_packet: usize,
    /// The sources seen so far, and whether a repair packet gave their number.
    count: u16,
    closed: bool,
    sources: Vec<Option<Vec<u8>>>,
    repairs: Vec<Option<Vec<u8>>>,
    recovered: Vec<(u16, Vec<u8>)>,
}

impl ReedSolomon {
    fn check(self) -> Result<(), CodeError> {
        check_size(self.size)?;
        match self.repairs {
            1..=crate::MOST_SOURCES => Ok(()),
            _ => Err(CodeError::Repairs(usize::from(self.repairs))),
        }
    }
}

impl BlockCode for ReedSolomon {
    fn encoder(&self, generation: u32) -> Result<Box<dyn BlockEncoder>, CodeError> {
        self.check()?;
        Ok(Box::new(Encoder {
            code: *self,
            generation,
            sources: Sources::default(),
            repairs: None,
            sent: 0,
        }))
    }

    fn decoder(
        &self,
        _generation: u32,
        longest_packet: usize,
    ) -> Result<Box<dyn BlockDecoder>, CodeError> {
        self.check()?;
        Ok(Box::new(Decoder {
            code: *self,
            longest_packet,
            count: 0,
            closed: false,
            sources: vec![None; usize::from(self.size)],
            repairs: vec![None; usize::from(self.repairs)],
            recovered: Vec::new(),
        }))
    }
}

impl BlockEncoder for Encoder {
    fn push(&mut self, packet: &[u8]) -> Result<Header, CodeError> {
        if self.repairs.is_some() {
            return Err(CodeError::Closed);
        }
        let limit = usize::from(self.code.size);
        self.sources.push(packet, limit, self.generation)
    }

    fn repair(&mut self, symbol: &mut Vec<u8>) -> Result<Header, CodeError> {
        let count = self.sources.symbols().len();
        check_sources(count, usize::from(self.code.size))?;
        let (number, most) = (self.sent, usize::from(self.code.repairs));
        if self.repairs.is_none() {
            self.repairs = Some(repairs(self.sources.symbols(), most)?);
        }
        let repair = self.repairs.iter().flatten().nth(number);
        symbol.clone_from(repair.ok_or(CodeError::Repairs(most))?);
        self.sent += 1;
        Ok(Header::Repair {
            generation: self.generation,
            count: count as u16,
            seed: number as u32,
        })
    }

    fn restart(&mut self, generation: u32) {
        self.generation = generation;
        self.sources.clear();
        self.repairs = None;
        self.sent = 0;
    }
}

fn repairs(symbols: &[Vec<u8>], count: usize) -> Result<Vec<Vec<u8>>, CodeError> {
    let longest = symbols
        .iter()
        .map(Vec::len)
        .max()
        .unwrap_or(0)
        .next_multiple_of(2);
    let mut encoder = ReedSolomonEncoder::new(symbols.len(), count, longest)
        .map_err(|_| CodeError::Repairs(count))?;
    for symbol in symbols {
        encoder
            .add_original_shard(extended(symbol, longest))
            .map_err(|_| CodeError::Damaged)?;
    }
    let result = encoder.encode().map_err(|_| CodeError::Damaged)?;
    Ok(result.recovery_iter().map(<[u8]>::to_vec).collect())
}

fn extended(symbol: &[u8], length: usize) -> Vec<u8> {
    let mut extended = symbol.to_vec();
    extended.resize(length, 0);
    extended
}

impl Decoder {
    fn solve(&mut self) -> Result<(), CodeError> {
        let count = usize::from(self.count);
        if !self.closed || self.missing() > 0 || self.sources[..count].iter().all(Option::is_some) {
            return Ok(());
        }
        for (index, mut symbol) in self.decoded(count)? {
            symbol::trim(&mut symbol)?;
            self.recovered
                .push((index as u16, symbol::packet(&symbol).to_vec()));
            self.sources[index] = Some(symbol);
        }
        Ok(())
    }

    /// The length of the generation's repair packets, if one arrived.
    fn repair_length(&self) -> Option<usize> {
        self.repairs.iter().flatten().map(Vec::len).next()
    }

    fn decoded(&self, count: usize) -> Result<Vec<(usize, Vec<u8>)>, CodeError> {
        let length = self.repair_length().unwrap_or(0);
        let damaged = |_| CodeError::Damaged;
        let mut decoder =
            ReedSolomonDecoder::new(count, self.repairs.len(), length).map_err(damaged)?;
        for (index, symbol) in self.sources[..count].iter().enumerate() {
            if let Some(symbol) = symbol {
                if symbol.len() > length {
                    return Err(CodeError::Damaged);
                }
                decoder
                    .add_original_shard(index, extended(symbol, length))
                    .map_err(damaged)?;
            }
        }
        for (number, symbol) in self.repairs.iter().enumerate() {
            if let Some(symbol) = symbol {
                decoder
                    .add_recovery_shard(number, symbol)
                    .map_err(damaged)?;
            }
        }
        let restored = decoder.decode().map_err(damaged)?;
        Ok(restored
            .restored_original_iter()
            .map(|(index, symbol)| (index, symbol.to_vec()))
            .collect())
    }
}

impl BlockDecoder for Decoder {
    fn systematic(&mut self, index: u16, packet: &[u8]) -> Result<Progress, CodeError> {
        symbol::check_length(symbol::PREFIX + packet.len(), self.longest_packet)?;
        let symbol = symbol::of_packet(packet)?;
        let (sources, limit) = (usize::from(index) + 1, self.sources.len());
        if sources > limit || (self.closed && index >= self.count) {
            return Err(CodeError::Sources { sources, limit });
        }
        self.count = self.count.max(index + 1);
        if self.sources[usize::from(index)].is_some() {
            return Ok(Progress::Redundant);
        }
        self.sources[usize::from(index)] = Some(symbol);
        self.solve()?;
        Ok(Progress::Useful)
    }

    fn repair(&mut self, count: u16, seed: u32, symbol: &[u8]) -> Result<Progress, CodeError> {
        symbol::check_length(symbol.len(), self.longest_packet)?;
        let (sources, limit) = (usize::from(count), self.sources.len());
        if count == 0
            || sources > limit
            || count < self.count
            || (self.closed && count != self.count)
        {
            return Err(CodeError::Sources { sources, limit });
        }
        let length = self.repair_length().unwrap_or(symbol.len());
        if symbol.len() % 2 == 1 || symbol.len() != length {
            return Err(CodeError::Damaged);
        }
        let number = seed as usize;
        let Some(stored) = self.repairs.get(number) else {
            return Err(CodeError::Repairs(usize::from(self.code.repairs)));
        };
        (self.count, self.closed) = (count, true);
        if stored.is_some() || self.missing() == 0 {
            return Ok(Progress::Redundant);
        }
        self.repairs[number] = Some(symbol.to_vec());
        self.solve()?;
        Ok(Progress::Useful)
    }

    fn take_recovered(&mut self, take: &mut dyn FnMut(u16, &[u8])) {
        for (index, packet) in self.recovered.drain(..) {
            take(index, &packet);
        }
    }

    fn restart(&mut self, _generation: u32) {
        self.count = 0;
        self.closed = false;
        self.sources.fill(None);
        self.repairs.fill(None);
        self.recovered.clear();
    }

    fn missing(&self) -> u16 {
        let held = self.sources.iter().flatten().count() + self.repairs.iter().flatten().count();
        usize::from(self.count).saturating_sub(held) as u16
    }
}
