// SPDX-License-Identifier: Apache-2.0
//! The order of a sender's packets: one endless stream, or flows of drawn sizes in turns. Pure.

use super::{FlowsConfig, HEADER_BYTES, PACKET_HEADERS_BYTES};

/// The smallest packet that carries our header.
const PACKET_MIN_BYTES: u64 = (PACKET_HEADERS_BYTES + HEADER_BYTES) as u64;

/// The channel whose draws the flows are; no channel of the load has this number.
const CHANNEL: u64 = u64::MAX;

/// A packet to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextPacket {
    /// The turn it takes, from 0 to one less than the number of flows at a time.
    pub turn: usize,
    /// Its stream, or flow.
    pub stream: u32,
    /// Its number in the stream.
    pub seq: u64,
    /// IP bytes.
    pub packet_bytes: usize,
}

/// One stream or flow in progress.
#[derive(Clone, Copy, Debug)]
struct Stream {
    number: u32,
    seq: u64,
    /// IP bytes still to be sent; None: endless.
    remaining: Option<u64>,
}

/// The packets of a sender, one after the other.
#[derive(Clone, Debug, Default)]
pub struct Packets {
    packet_bytes: u64,
    flows: Option<FlowsConfig>,
    streams: Vec<Stream>,
    turn: usize,
    started: u32,
    ended: u64,
}

impl Packets {
    /// Packets of `packet_bytes`, all of one stream, or of `flows`.
    pub fn new(packet_bytes: usize, flows: Option<FlowsConfig>) -> Self {
        let mut packets = Self {
            packet_bytes: packet_bytes as u64,
            flows,
            ..Self::default()
        };
        for _ in 0..packets.flows.as_ref().map_or(1, |flows| flows.parallel) {
            let stream = packets.begin();
            packets.streams.push(stream);
        }
        packets
    }

    /// The next packet. A flow that is over makes place for the next one.
    pub fn next(&mut self) -> NextPacket {
        let turn = self.turn;
        self.turn = (turn + 1) % self.streams.len();
        if self.streams[turn].remaining == Some(0) {
            self.ended += 1;
            self.streams[turn] = self.begin();
        }
        let stream = &mut self.streams[turn];
        let bytes = stream.remaining.map_or(self.packet_bytes, |remaining| {
            remaining.min(self.packet_bytes).max(PACKET_MIN_BYTES)
        });
        stream.remaining = stream.remaining.map(|n| n.saturating_sub(bytes));
        stream.seq += 1;
        NextPacket {
            turn,
            stream: stream.number,
            seq: stream.seq - 1,
            packet_bytes: bytes as usize,
        }
    }

    /// Flows of which every packet was given out.
    pub fn flows_completed(&self) -> u64 {
        let completed = self.streams.iter().filter(|s| s.remaining == Some(0));
        self.ended + completed.count() as u64
    }

    fn begin(&mut self) -> Stream {
        let number = self.started;
        self.started = number.wrapping_add(1);
        let remaining = self.flows.as_ref().map(|flows| {
            atoll_flow_sizes::draw(&flows.flow_sizes, flows.seed, CHANNEL, u64::from(number), 1)
                .size_bytes
        });
        Stream {
            number,
            seq: 0,
            remaining,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_flow_sizes::Distribution;
    use std::collections::BTreeMap;

    #[test]
    fn a_lone_stream_never_ends() {
        let mut packets = Packets::new(1500, None);
        for seq in 0..5 {
            let next = NextPacket {
                turn: 0,
                stream: 0,
                seq,
                packet_bytes: 1500,
            };
            assert_eq!(packets.next(), next);
        }
        assert_eq!(packets.flows_completed(), 0);
    }

    #[test]
    fn flows_take_turns_and_have_the_sizes_that_their_seed_draws() {
        let flows = FlowsConfig {
            flow_sizes: Distribution::published(),
            seed: 4,
            parallel: 3,
        };
        let mut packets = Packets::new(1200, Some(flows.clone()));
        let mut bytes: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for count in 0..20_000 {
            let next = packets.next();
            assert_eq!(next.turn, count % 3);
            let found = bytes.entry(next.stream).or_default();
            assert_eq!(next.seq, found.len() as u64);
            found.push(next.packet_bytes);
        }
        assert!(bytes.len() > 100);
        let completed = packets.flows_completed() as usize;
        let mut whole = 0;
        for (stream, sent) in bytes {
            let drawn =
                atoll_flow_sizes::draw(&flows.flow_sizes, 4, u64::MAX, u64::from(stream), 1);
            let total = sent.iter().sum::<usize>() as u64;
            whole += usize::from(total >= drawn.size_bytes);
            assert!(total < drawn.size_bytes + 48, "{sent:?} of {drawn:?}");
            assert!(sent[..sent.len() - 1].iter().all(|&packet| packet == 1200));
        }
        assert_eq!(whole, completed);
    }
}
