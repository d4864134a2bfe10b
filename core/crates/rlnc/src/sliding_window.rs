// SPDX-License-Identifier: Apache-2.0
//! Coding of an endless stream: repair packets combine the last packets, without generations.
//!
//! As in RFC 8681 (sliding window random linear codes), and in its field. The header and the generator of coefficients are
//! this crate's, so it does not speak with programs of that RFC.

use std::collections::VecDeque;

use atoll_gf256::{Arithmetic, Field};

use crate::block_code::Progress;
use crate::elimination::Elimination;
use crate::errors::CodeError;
use crate::generation_encoder::{check_size, combine};
use crate::header::Header;
use crate::spare::SpareTerms;
use crate::{coefficients, symbol};

const FIELD: Field = Field::Rfc8681;

/// Combines the last packets of a stream.
#[derive(Debug)]
pub struct WindowEncoder {
    arithmetic: Arithmetic,
    width: u16,
    next: u32,
    symbols: VecDeque<Vec<u8>>,
    next_seed: u32,
    terms: SpareTerms,
}

impl WindowEncoder {
    /// An encoder whose repair packets combine the last `width` packets. The first packet has the number `first`.
    ///
    /// # Errors
    /// If `width` is not 2 to [`crate::MOST_SOURCES`].
    pub fn new(first: u32, width: u16) -> Result<Self, CodeError> {
        check_size(width)?;
        let arithmetic = Arithmetic::new(FIELD);
        Ok(Self {
            arithmetic,
            width,
            next: first,
            symbols: VecDeque::new(),
            next_seed: 0,
            terms: SpareTerms::default(),
        })
    }

    /// Take the next packet; the header with which it is to be sent. The oldest one leaves the window if it is full.
    ///
    /// # Errors
    /// If the packet is longer than 65535 bytes.
    pub fn push(&mut self, packet: &[u8]) -> Result<Header, CodeError> {
        let symbol = symbol::of_packet(packet)?;
        if self.symbols.len() == usize::from(self.width) {
            self.symbols.pop_front();
        }
        self.symbols.push_back(symbol);
        let id = self.next;
        self.next = id.wrapping_add(1);
        Ok(Header::WindowSource { id })
    }

    /// Drop the packets before number `id`, which need no more repair: the decoder has them.
    pub fn acknowledge(&mut self, id: u32) {
        while is_after(id, self.first()) && self.symbols.pop_front().is_some() {}
    }

    /// Replace `symbol` by that of the next repair packet; the header with which it is to be sent.
    ///
    /// # Errors
    /// If the window is empty.
    pub fn repair(&mut self, symbol: &mut Vec<u8>) -> Result<Header, CodeError> {
        let (first, count, seed) = (self.first(), self.symbols.len() as u16, self.next_seed);
        if count == 0 {
            return Err(CodeError::Sources {
                sources: 0,
                limit: usize::from(self.width),
            });
        }
        self.next_seed = seed.wrapping_add(1);
        let coefficients = coefficients::of_window(first, count, seed);
        combine(
            self.arithmetic,
            self.symbols.iter().map(Vec::as_slice),
            &coefficients,
            &mut self.terms,
            symbol,
        );
        Ok(Header::WindowRepair { first, count, seed })
    }

    fn first(&self) -> u32 {
        self.next.wrapping_sub(self.symbols.len() as u32)
    }
}

/// Recovers packets of a stream, as long as they are among the last ones.
///
/// It holds at most twice as many symbols as it remembers packets, whatever it is given. A packet whose number is far ahead
/// moves the window there, so that numbers must come from the encoder.
#[derive(Debug)]
pub struct WindowDecoder {
    longest_packet: usize,
    /// The number after the newest packet; None before the first one.
    end: Option<u32>,
    elimination: Elimination,
}

impl WindowDecoder {
    /// A decoder that remembers the last `width` packets (or up to the next power of two), of at most `longest_packet` bytes: more than the encoder's
    /// window has, by as many packets as repair packets may come late.
    ///
    /// # Errors
    /// If `width` is not 2 to [`crate::MOST_SOURCES`].
    pub fn new(width: u16, longest_packet: usize) -> Result<Self, CodeError> {
        check_size(width)?;
        let columns = usize::from(width).next_power_of_two();
        Ok(Self {
            longest_packet,
            end: None,
            elimination: Elimination::new(FIELD, columns),
        })
    }

    /// Take a packet as it was sent, which the caller delivers itself, at once.
    ///
    /// # Errors
    /// If it is too long, or a damaged one was recovered with it.
    pub fn source(&mut self, id: u32, packet: &[u8]) -> Result<Progress, CodeError> {
        symbol::check_length(symbol::PREFIX + packet.len(), self.longest_packet)?;
        symbol::check_packet(packet)?;
        if !self.reach(id, 1) {
            return Ok(Progress::Redundant);
        }
        let column = self.column(id);
        self.restart_if_damaged(|elimination| elimination.learn(column, packet))
    }

    /// Take a repair packet, by the fields of its header.
    ///
    /// # Errors
    /// If it combines more packets than the decoder remembers, is too long, or a damaged one was recovered with it.
    pub fn repair(
        &mut self,
        first: u32,
        count: u16,
        seed: u32,
        symbol: &[u8],
    ) -> Result<Progress, CodeError> {
        symbol::check_length(symbol.len(), self.longest_packet)?;
        let (sources, limit) = (usize::from(count), self.elimination.columns());
        if sources == 0 || sources > limit {
            return Err(CodeError::Sources { sources, limit });
        }
        if !self.reach(first, count) {
            return Ok(Progress::Redundant);
        }
        let mut coefficients = self.elimination.spare_row();
        coefficients.resize(limit, 0);
        for (number, coefficient) in coefficients::of_window(first, count, seed)
            .into_iter()
            .enumerate()
        {
            coefficients[self.column(first.wrapping_add(number as u32))] = coefficient;
        }
        self.restart_if_damaged(|elimination| elimination.insert(coefficients, symbol))
    }

    /// The packets recovered since the last call, with their numbers. Call it after each packet: what leaves the window
    /// is forgotten.
    pub fn recovered(&mut self) -> Vec<(u32, Vec<u8>)> {
        let (columns, end) = (self.elimination.take_recovered(), self.end.unwrap_or(0));
        let width = self.elimination.columns() as u32;
        let packet = |column: usize| {
            let newest = end.wrapping_sub(1);
            let id = newest.wrapping_sub((newest % width + width - column as u32) % width);
            Some((id, symbol::packet(self.elimination.known(column)?).to_vec()))
        };
        columns.into_iter().filter_map(packet).collect()
    }

    /// Move the window so that it contains the newest of these packets. False if the oldest of them has left it.
    fn reach(&mut self, first: u32, count: u16) -> bool {
        let width = self.elimination.columns() as u32;
        let after = first.wrapping_add(u32::from(count));
        let end = *self.end.get_or_insert(after);
        let ahead = after.wrapping_sub(end);
        if is_after(after, end) {
            if ahead < width {
                for new in 0..ahead {
                    self.elimination.forget(self.column(end.wrapping_add(new)));
                }
            } else {
                self.elimination.clear();
            }
            self.end = Some(after);
        }
        self.end.is_some_and(|end| end.wrapping_sub(first) <= width)
    }

    /// Numbers take turns in the columns, whose number divides 2^32, so that they do where numbers begin again, too.
    fn column(&self, id: u32) -> usize {
        id as usize % self.elimination.columns()
    }

    fn restart_if_damaged(
        &mut self,
        step: impl FnOnce(&mut Elimination) -> Result<bool, CodeError>,
    ) -> Result<Progress, CodeError> {
        let done = step(&mut self.elimination);
        if self.elimination.is_damaged() {
            self.elimination.clear();
        }
        done.map(Progress::of)
    }
}

/// By serial numbers (RFC 1982).
fn is_after(one: u32, other: u32) -> bool {
    (1..1 << 31).contains(&one.wrapping_sub(other))
}
