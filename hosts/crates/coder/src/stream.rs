// SPDX-License-Identifier: Apache-2.0
//! What a tunnel needs of a code, whether it has generations or a sliding window.

use crate::counters::DecoderSums;
use atoll_measures::Peak;
use atoll_redundancy::{BurstCounter, Report};
use atoll_rlnc::{CodeError, Header};
use std::fmt;

/// Properties of the code, the same at both ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Packets of a generation, or of the window.
    pub(crate) size: u16,
    /// Repair packets of a whole generation, or of as many packets as the window has.
    pub(crate) repairs: u16,
    /// Generations that packets join in turn, so that a burst of losses is spread over them.
    pub(crate) interleave: usize,
    /// Whether repair packets are made between the packets, and not at the end of a generation.
    pub(crate) interspersed: bool,
    /// The time after its first packet at which a generation ends that is not whole.
    pub(crate) flush_ns: u64,
}

/// A repair packet: its header, and the symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repair {
    pub(crate) header: Header,
    pub(crate) symbol: Vec<u8>,
}

/// What a packet, or time, led to.
#[derive(Debug, Default)]
pub(crate) struct Made {
    pub(crate) repairs: Vec<Repair>,
    /// Generations that ended.
    pub(crate) ended: u64,
}

/// Encodes the packets of one direction.
pub(crate) trait StreamEncoder: fmt::Debug {
    /// Take a packet: the header with which it is to be sent, and the repair packets that are to follow.
    ///
    /// # Errors
    /// None are expected of packets that an interface can take.
    fn push(&mut self, now_ns: u64, packet: &[u8]) -> Result<(Header, Made), CodeError>;

    /// Make the repair packets that are due because time has passed.
    ///
    /// # Errors
    /// As of [`StreamEncoder::push`].
    fn flush(&mut self, now_ns: u64) -> Result<Made, CodeError>;

    /// Make the repair packets that are due; later ones do not combine the packets before with those that follow.
    ///
    /// # Errors
    /// As of [`StreamEncoder::push`].
    fn end(&mut self) -> Result<Made, CodeError> {
        self.flush(u64::MAX)
    }

    /// When [`StreamEncoder::flush`] is to be called next.
    fn next_ns(&self) -> Option<u64>;

    /// [`Shape::repairs`] at present.
    fn repairs(&self) -> u16;

    /// Another number of them, from now on.
    fn set_repairs(&mut self, repairs: u16);

    /// The other coder said what arrived.
    fn learn(&mut self, report: &Report);
}

/// A packet that a decoder delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delivery<'a> {
    pub(crate) packet: &'a [u8],
    pub(crate) recovered: bool,
    /// Its number in the tunnel, as far as it is known.
    pub(crate) number: Option<u16>,
}

/// The packets that a decoder delivers, in turn. It is filled again and again, so that it needs no new memory.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    bytes: Vec<u8>,
    /// Of each packet: where it ends in `bytes`, whether it was recovered, and its number.
    packets: Vec<(usize, bool, Option<u16>)>,
}

impl Deliveries {
    pub(crate) fn push(&mut self, delivery: Delivery<'_>) {
        self.bytes.extend_from_slice(delivery.packet);
        let end = self.bytes.len();
        self.packets
            .push((end, delivery.recovered, delivery.number));
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.packets.clear();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Delivery<'_>> {
        let mut begin = 0;
        self.packets.iter().map(move |(end, recovered, number)| {
            let packet = &self.bytes[begin..*end];
            begin = *end;
            Delivery {
                packet,
                recovered: *recovered,
                number: *number,
            }
        })
    }
}

/// Decodes the packets of one direction. What it is given may come from anyone: it never panics, and its memory is bounded.
pub(crate) trait StreamDecoder: fmt::Debug {
    /// Take what an outer packet carries: the packets that it brings.
    fn take(&mut self, now_ns: u64, content: &[u8], deliveries: &mut Deliveries);

    /// Give up all packets that are missing; the next one is the first one of another session.
    fn restart(&mut self);

    /// Give up what gets no more packets.
    fn expire(&mut self, now_ns: u64);

    fn sums(&self) -> DecoderSums;

    /// What is to be said to the encoder.
    fn report(&self, now_ns: u64, number: u32) -> Report;

    /// How many packets more are needed to recover all that are missing, as far as they are known.
    fn rank_deficit(&self) -> u64;

    /// Longest time in which a packet was recovered.
    fn recovery_ns(&mut self) -> &mut Peak;

    /// Generations of which more packets may come.
    fn open_generations(&self) -> u64;
}

/// What a decoder counts.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) losses: BurstCounter,
    /// When the newest source packet came.
    newest_ns: u64,
    pub(crate) sums: DecoderSums,
    pub(crate) recovery_ns: Peak,
}

impl Received {
    /// A source packet of this number came.
    pub(crate) fn arrived(&mut self, now_ns: u64, number: u16) {
        self.losses.arrived(number);
        self.newest_ns = now_ns;
    }

    /// A packet was recovered that should have come at `since_ns`.
    pub(crate) fn recovered(&mut self, now_ns: u64, since_ns: u64) {
        let took_ns = now_ns.saturating_sub(since_ns);
        self.sums.recovered_packets += 1;
        self.sums.recovery_delay_ns += took_ns;
        self.recovery_ns.record(took_ns);
    }

    pub(crate) fn sums(&self) -> DecoderSums {
        let losses = self.losses.sums();
        let [
            bursts_of_1,
            bursts_of_2,
            bursts_of_3_to_4,
            bursts_of_5_to_8,
            longer_bursts,
        ] = losses.runs;
        DecoderSums {
            missing_source_packets: losses.lost,
            bursts_of_1,
            bursts_of_2,
            bursts_of_3_to_4,
            bursts_of_5_to_8,
            longer_bursts,
            ..self.sums
        }
    }

    /// A report without what is said of generations.
    pub(crate) fn report(&self, now_ns: u64, number: u32) -> Report {
        let held_us = now_ns.saturating_sub(self.newest_ns) / 1000;
        Report {
            number,
            newest: self.losses.newest().unwrap_or(0),
            arrived_ns: self.newest_ns,
            held_us: u32::try_from(held_us).unwrap_or(u32::MAX),
            losses: self.losses.sums(),
            repairs: self.sums.arrived_repair_packets,
            recovered: self.sums.recovered_packets,
            residual: self.sums.lost_packets,
            ..Report::default()
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Packets that were delivered, and whether each was recovered.
    pub(crate) fn taken(
        decoder: &mut dyn StreamDecoder,
        now_ns: u64,
        content: &[u8],
    ) -> Vec<(Vec<u8>, bool)> {
        let mut deliveries = Deliveries::default();
        decoder.take(now_ns, content, &mut deliveries);
        let packets = deliveries.iter();
        packets
            .map(|each| (each.packet.to_vec(), each.recovered))
            .collect()
    }
}
