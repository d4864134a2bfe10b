// SPDX-License-Identifier: Apache-2.0
//! The interface of codes to tunnels, whether they have generations or a sliding window.

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
pub(crate) struct EncoderOutput {
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
    fn push(&mut self, now_ns: u64, packet: &[u8]) -> Result<(Header, EncoderOutput), CodeError>;

    /// Make the repair packets that are due because time has passed.
    ///
    /// # Errors
    /// As of [`StreamEncoder::push`].
    fn flush(&mut self, now_ns: u64) -> Result<EncoderOutput, CodeError>;

    /// Make the repair packets that are due; later ones do not combine the packets before with those that follow.
    ///
    /// # Errors
    /// As of [`StreamEncoder::push`].
    fn end(&mut self) -> Result<EncoderOutput, CodeError> {
        self.flush(u64::MAX)
    }

    /// When [`StreamEncoder::flush`] is to be called next.
    fn next_ns(&self) -> Option<u64>;

    /// [`Shape::repairs`] at present.
    fn repairs(&self) -> u16;

    /// Another number of them, from now on.
    fn set_repairs(&mut self, repairs: u16);

    /// The other coder said what arrived.
    fn learn(&mut self, _report: &Report) {}
}

/// A packet that a decoder delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delivery<'a> {
    pub(crate) packet: &'a [u8],
    pub(crate) recovered: bool,
    /// Its number in the tunnel, if it is known.
    pub(crate) number: Option<u16>,
}

/// The packets that an outer packet brings.
#[derive(Debug, Default)]
pub(crate) struct Deliveries<'a> {
    /// The packet in the outer packet, uncopied, and its number in the tunnel.
    pub(crate) arrived: Option<(&'a [u8], u16)>,
    /// Packets that were recovered with it, and their numbers if they are known.
    pub(crate) recovered: Vec<(Vec<u8>, Option<u16>)>,
}

impl Deliveries<'_> {
    /// All of them, in the order in which they are to be delivered.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Delivery<'_>> {
        let delivery = |packet, recovered, number| Delivery {
            packet,
            recovered,
            number,
        };
        let arrived = self.arrived.into_iter();
        arrived
            .map(move |(packet, number)| delivery(packet, false, Some(number)))
            .chain(
                (self.recovered.iter())
                    .map(move |(packet, number)| delivery(packet, true, *number)),
            )
    }
}

/// Decodes the packets of one direction. What it is given may come from anyone: it never panics, and its memory is bounded.
pub(crate) trait StreamDecoder: fmt::Debug {
    /// Take the content of an outer packet: the packets that it brings.
    fn take<'a>(&mut self, now_ns: u64, content: &'a [u8]) -> Deliveries<'a>;

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
    fn open_generations(&self) -> u64 {
        0
    }
}

/// What a decoder counts.
#[derive(Debug, Default)]
pub(crate) struct ReceiveCounters {
    pub(crate) losses: BurstCounter,
    /// When the newest source packet came.
    newest_ns: u64,
    pub(crate) sums: DecoderSums,
    pub(crate) recovery_ns: Peak,
}

impl ReceiveCounters {
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
        (decoder.take(now_ns, content).iter())
            .map(|delivery| (delivery.packet.to_vec(), delivery.recovered))
            .collect()
    }
}
