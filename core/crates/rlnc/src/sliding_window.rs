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
use crate::generation_encoder::{check_size, check_sources, combine};
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

    /// Drop all packets. The numbers go on.
    pub fn clear(&mut self) {
        self.symbols.clear();
    }

    /// Replace `symbol` by that of the next repair packet; the header with which it is to be sent.
    ///
    /// # Errors
    /// If the window is empty.
    pub fn repair(&mut self, symbol: &mut Vec<u8>) -> Result<Header, CodeError> {
        let (first, count, seed) = (self.first(), self.symbols.len() as u16, self.next_seed);
        check_sources(self.symbols.len(), usize::from(self.width))?;
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

    /// Whether there is nothing to combine.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty()
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
    /// The packets of the window: the oldest one's number, and the number after the newest one. None before the first one.
    window: Option<(u32, u32)>,
    /// Whether packets before the oldest one of the window are forgotten; before, overtaken ones may be older.
    has_forgotten: bool,
    /// Missing packets before this one are counted.
    counted: Option<u32>,
    elimination: Elimination,
    lost: u64,
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
            window: None,
            has_forgotten: false,
            counted: None,
            elimination: Elimination::new(FIELD, columns),
            lost: 0,
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
        let columns = self.elimination.columns();
        check_sources(usize::from(count), columns)?;
        if !self.reach(first, count) {
            return Ok(Progress::Redundant);
        }
        let mut coefficients = self.elimination.spare_row();
        coefficients.resize(columns, 0);
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
        let newest = self.window.map_or(0, |(_, end)| end).wrapping_sub(1);
        let width = self.elimination.columns() as u32;
        let mut recovered = Vec::new();
        self.elimination.each_recovered(|column, symbol| {
            let id = newest.wrapping_sub((newest % width + width - column as u32) % width);
            recovered.push((id, symbol::packet(symbol).to_vec()));
        });
        recovered
    }

    /// The window: the number of its oldest packet, and the number after its newest one. `None` before the first packet.
    #[must_use]
    pub fn window(&self) -> Option<(u32, u32)> {
        self.window
    }

    /// Packets that left the window and were neither received nor recovered.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The first packet that is missing in the window and not given up, or the number after the newest one; `None` before the
    /// first packet.
    #[must_use]
    pub fn first_missing(&self) -> Option<u32> {
        let (_, end) = self.window?;
        Some(self.not_counted().next().unwrap_or(end))
    }

    /// How many useful packets are needed until all packets of the window are known, the rank deficit.
    #[must_use]
    pub fn missing(&self) -> u16 {
        let (begin, end) = self.window.unwrap_or_default();
        let packets = end.wrapping_sub(begin) as usize;
        packets.saturating_sub(self.elimination.rank()) as u16
    }

    /// Whether a packet of the window was received or recovered. False for others.
    #[must_use]
    pub fn knows(&self, id: u32) -> bool {
        let (begin, end) = self.window.unwrap_or_default();
        id.wrapping_sub(begin) < end.wrapping_sub(begin)
            && self.elimination.known(self.column(id)).is_some()
    }

    /// Count what is missing as lost. What comes nevertheless is taken.
    pub fn give_up(&mut self) {
        self.lost += self.not_counted().count() as u64;
        self.counted = self.window.map(|(_, end)| end);
    }

    /// Give up what is missing; the next packet is the first one of another stream.
    pub fn restart(&mut self) {
        self.give_up();
        self.elimination.clear();
        (self.window, self.counted, self.has_forgotten) = (None, None, false);
    }

    /// The packets that are missing and not counted as lost.
    fn not_counted(&self) -> impl Iterator<Item = u32> + '_ {
        let (begin, end) = self.window.unwrap_or_default();
        ids(begin, end).filter(|id| !self.knows(*id) && !self.is_counted(*id))
    }

    fn is_counted(&self, id: u32) -> bool {
        self.counted.is_some_and(|until| is_after(until, id))
    }

    /// Move the window so that it contains the newest of these packets. False if the oldest of them has left it.
    fn reach(&mut self, first: u32, count: u16) -> bool {
        let width = self.elimination.columns() as u32;
        let new_end = first.wrapping_add(u32::from(count));
        let (mut begin, mut end) = self.window.unwrap_or((first, new_end));
        if is_after(new_end, end) {
            let ahead = new_end.wrapping_sub(end);
            if ahead < width {
                for new in ids(end, new_end) {
                    begin = self.make_room(new, begin);
                }
            } else {
                self.give_up();
                self.elimination.clear();
                let left_out = ahead - width;
                self.lost += u64::from(left_out);
                begin = end.wrapping_add(left_out);
            }
            end = new_end;
        }
        let is_older = is_after(begin, first);
        let is_in = end.wrapping_sub(first) <= width && !(is_older && self.has_forgotten);
        if is_in && is_older {
            begin = first; // overtaken by those that came first
        }
        self.window = Some((begin, end));
        is_in
    }

    /// Free the column of a new packet. If the oldest packet had it, it leaves: the number of the oldest one then.
    fn make_room(&mut self, new: u32, oldest: u32) -> u32 {
        let column = self.column(new);
        let leaves = new.wrapping_sub(oldest) as usize >= self.elimination.columns();
        let is_lost = leaves && self.elimination.known(column).is_none();
        self.lost += u64::from(is_lost && !self.is_counted(oldest));
        self.elimination.forget(column);
        oldest.wrapping_add(u32::from(leaves))
    }

    /// Numbers take turns in the columns, whose number divides 2^32, so that they do where numbers begin again, too.
    fn column(&self, id: u32) -> usize {
        id as usize % self.elimination.columns()
    }

    fn restart_if_damaged(
        &mut self,
        step: impl FnOnce(&mut Elimination) -> Result<bool, CodeError>,
    ) -> Result<Progress, CodeError> {
        let result = step(&mut self.elimination);
        if self.elimination.is_damaged() {
            self.give_up();
            self.elimination.clear();
            self.window = self.window.map(|(_, end)| (end, end));
            self.has_forgotten = true;
        }
        result.map(Progress::of)
    }
}

fn ids(begin: u32, end: u32) -> impl Iterator<Item = u32> {
    (0..end.wrapping_sub(begin)).map(move |number| begin.wrapping_add(number))
}

/// By serial numbers (RFC 1982).
fn is_after(one: u32, other: u32) -> bool {
    (1..1 << 31).contains(&one.wrapping_sub(other))
}
