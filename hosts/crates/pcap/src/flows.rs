// SPDX-License-Identifier: Apache-2.0
//! Flows: both directions of a 5-tuple are one, a new connection on it is another.

use crate::byte_ranges::ByteRanges;
use crate::packet::{ACK, FIN, ICMP, Packet, RST, SYN, TCP, Tcp, UDP};
use std::collections::HashMap;

/// The fields of a packet that depend on its flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowFields {
    /// The flow's number.
    pub flow: u32,
    /// TCP payload bytes not seen before.
    pub new_payload_bytes: u32,
    /// TCP window in bytes.
    pub window: u32,
}

/// All flows of a capture. Each 5-tuple keeps the state of its latest connection only.
#[derive(Debug, Default)]
pub struct Flows {
    latest: HashMap<FlowKey, Connection>,
    /// How many there are.
    pub count: u32,
}

/// A 5-tuple without direction: the lower endpoint first.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FlowKey {
    low: (u32, u16),
    high: (u32, u16),
    proto: u8,
}

#[derive(Debug)]
struct Connection {
    flow: u32,
    reset: bool,
    /// From the lower endpoint, from the higher one.
    directions: [Direction; 2],
}

#[derive(Debug, Default)]
struct Direction {
    /// Sequence number of its SYN.
    initial: Option<u32>,
    /// Window scale its SYN offered.
    window_scale: Option<u8>,
    finished: bool,
    ranges: ByteRanges,
}

impl Flows {
    /// Put a packet into its flow.
    pub fn track(&mut self, packet: &Packet) -> FlowFields {
        let (key, sender) = flow_key(packet);
        let next = self.count;
        let connection = self
            .latest
            .entry(key)
            .or_insert_with(|| Connection::new(next));
        if packet
            .tcp
            .is_some_and(|tcp| connection.is_replaced_by(&tcp, sender))
        {
            *connection = Connection::new(next);
        }
        if connection.flow == next {
            self.count += 1;
        }
        let Some(tcp) = packet.tcp else {
            return FlowFields {
                flow: connection.flow,
                new_payload_bytes: 0,
                window: 0,
            };
        };
        // A fragmented segment's first part holds its header; the payload of later ones cannot be placed.
        let new_payload_bytes = connection.count_segment(&tcp, packet.payload_bytes, sender);
        FlowFields {
            flow: connection.flow,
            new_payload_bytes,
            window: connection.window(&tcp, sender),
        }
    }
}

impl Connection {
    fn new(flow: u32) -> Self {
        Self {
            flow,
            reset: false,
            directions: [Direction::default(), Direction::default()],
        }
    }

    /// Whether a segment opens another connection on the same 5-tuple: a SYN (without ACK) that is no
    /// retransmission of the one that opened this.
    fn is_replaced_by(&self, tcp: &Tcp, sender: usize) -> bool {
        if !tcp.has(SYN) {
            return false;
        }
        let direction = &self.directions[sender];
        if tcp.has(ACK) {
            // The capture has this direction only: there is no SYN of the other one.
            let reverse = &self.directions[1 - sender];
            return reverse.initial.is_none()
                && reverse.ranges.is_empty()
                && direction.initial.is_some_and(|initial| initial != tcp.seq);
        }
        match direction.initial {
            Some(initial) => initial != tcp.seq,
            // The capture did not see this direction begin: it had better be over, or under way.
            None => self.is_closed() || !direction.ranges.is_empty(),
        }
    }

    fn is_closed(&self) -> bool {
        self.reset || self.directions.iter().all(|direction| direction.finished)
    }

    /// Note a segment; how many bytes of its payload are new. SYN and FIN take a sequence number
    /// each, and are no payload.
    fn count_segment(&mut self, tcp: &Tcp, payload_bytes: u32, sender: usize) -> u32 {
        let direction = &mut self.directions[sender];
        if tcp.has(SYN) && direction.initial.is_none() {
            direction.initial = Some(tcp.seq);
            direction.window_scale = tcp.window_scale;
        }
        self.reset |= tcp.has(RST);
        direction.finished |= tcp.has(FIN);
        if tcp.has(RST) {
            return 0; // the payload of a reset is a diagnostic, not data (RFC 9293, section 3.5.3)
        }
        let payload_at = tcp.seq.wrapping_add(u32::from(tcp.has(SYN)));
        direction.ranges.add(payload_at, payload_bytes)
    }

    /// Scaled only when both sides offered to; never on a SYN (RFC 7323, section 2.2).
    fn window(&self, tcp: &Tcp, sender: usize) -> u32 {
        let scales = (
            self.directions[sender].window_scale,
            self.directions[1 - sender].window_scale,
        );
        match scales {
            (Some(scale), Some(_)) if !tcp.has(SYN) => u32::from(tcp.window) << scale,
            _ => u32::from(tcp.window),
        }
    }
}

/// The flow's key, and which of its endpoints sent the packet.
fn flow_key(packet: &Packet) -> (FlowKey, usize) {
    let (sport, dport) = match packet.proto {
        TCP | UDP => (packet.sport, packet.dport),
        ICMP => (packet.sport, packet.sport), // the identifier; each sequence number is no flow of its own
        _ => (0, 0),
    };
    let (src, dst) = ((packet.src, sport), (packet.dst, dport));
    let sender = usize::from(src > dst);
    let (low, high) = if sender == 0 { (src, dst) } else { (dst, src) };
    let proto = packet.proto;
    (FlowKey { low, high, proto }, sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: (u32, u16) = (0x0a14_0001, 40000);
    const SERVER: (u32, u16) = (0x0a0a_0001, 5001);

    fn segment(from: (u32, u16), to: (u32, u16), seq: u32, flags: u8, payload: u32) -> Packet {
        Packet {
            src: from.0,
            dst: to.0,
            sport: from.1,
            dport: to.1,
            proto: TCP,
            payload_bytes: payload,
            tcp: Some(Tcp {
                seq,
                flags,
                window: 100,
                ..Tcp::default()
            }),
            ..Packet::default()
        }
    }

    #[test]
    fn a_capture_of_one_direction_tells_connections_apart_by_the_servers_syn() {
        let mut flows = Flows::default();
        let mut placed = Vec::new();
        for initial in [900, 900, 5000] {
            for (seq, flags, payload) in [
                (initial, SYN | ACK, 0),
                (initial + 1, ACK, 1000),
                (initial + 1001, ACK | FIN, 5),
            ] {
                let found = flows.track(&segment(SERVER, CLIENT, seq, flags, payload));
                placed.push((found.flow, found.new_payload_bytes));
            }
        }
        let first = [(0, 0), (0, 1000), (0, 5)];
        let repeated = [(0, 0), (0, 0), (0, 0)];
        let second = [(1, 0), (1, 1000), (1, 5)];
        assert_eq!(placed, [first, repeated, second].concat());
    }

    fn connection(flows: &mut Flows, initial: u32) -> Vec<(u32, u32)> {
        [
            segment(CLIENT, SERVER, initial, SYN, 0),
            segment(SERVER, CLIENT, 900, SYN | ACK, 0),
            segment(CLIENT, SERVER, initial + 1, ACK, 8),
            segment(SERVER, CLIENT, 901, ACK, 1000),
            segment(SERVER, CLIENT, 901, ACK, 1000),
            segment(SERVER, CLIENT, 1901, ACK | FIN, 5),
            segment(CLIENT, SERVER, initial + 9, ACK | FIN, 0),
            segment(SERVER, CLIENT, 1907, ACK, 0),
        ]
        .iter()
        .map(|packet| flows.track(packet))
        .map(|placed| (placed.flow, placed.new_payload_bytes))
        .collect()
    }

    #[test]
    fn both_directions_are_one_flow_and_syn_and_fin_are_no_payload() {
        let mut flows = Flows::default();
        let placed = connection(&mut flows, 50);
        assert!(placed.iter().all(|(flow, _)| *flow == 0));
        let new: Vec<u32> = placed.iter().map(|(_, new)| *new).collect();
        assert_eq!(new, [0, 0, 8, 1000, 0, 5, 0, 0]);
        assert_eq!(flows.count, 1);
    }

    #[test]
    fn a_new_connection_on_a_used_5_tuple_is_a_new_flow() {
        let mut flows = Flows::default();
        connection(&mut flows, 50);
        let again = connection(&mut flows, 70_000);
        assert!(again.iter().all(|(flow, _)| *flow == 1));
        assert_eq!(
            again[3],
            (1, 1000),
            "the same sequence numbers are other bytes now"
        );
        assert_eq!(flows.count, 2);
    }

    #[test]
    fn a_retransmitted_syn_opens_nothing() {
        let mut flows = Flows::default();
        let syn = segment(CLIENT, SERVER, 50, SYN, 0);
        assert_eq!(flows.track(&syn).flow, 0);
        assert_eq!(flows.track(&syn).flow, 0);
        let refused = segment(SERVER, CLIENT, 0, RST | ACK, 0);
        assert_eq!(flows.track(&refused).flow, 0);
        assert_eq!(flows.track(&segment(CLIENT, SERVER, 51, SYN, 0)).flow, 1);
    }

    #[test]
    fn a_connection_met_midway_gives_way_to_a_new_one() {
        let mut flows = Flows::default();
        assert_eq!(flows.track(&segment(CLIENT, SERVER, 10, ACK, 100)).flow, 0);
        assert_eq!(flows.track(&segment(CLIENT, SERVER, 5000, SYN, 0)).flow, 1);
    }

    #[test]
    fn data_in_a_syn_begins_after_its_sequence_number() {
        let mut flows = Flows::default();
        let opened = flows.track(&segment(CLIENT, SERVER, 50, SYN, 10));
        assert_eq!(opened.new_payload_bytes, 10);
        let repeated = flows.track(&segment(CLIENT, SERVER, 51, ACK, 20));
        assert_eq!(repeated.new_payload_bytes, 10);
    }

    #[test]
    fn windows_are_scaled_only_when_both_sides_offered() {
        let mut flows = Flows::default();
        let mut syn = segment(CLIENT, SERVER, 1, SYN, 0);
        syn.tcp.as_mut().unwrap().window_scale = Some(7);
        assert_eq!(flows.track(&syn).window, 100);
        assert_eq!(flows.track(&segment(CLIENT, SERVER, 2, ACK, 0)).window, 100);
        let mut answer = segment(SERVER, CLIENT, 1, SYN | ACK, 0);
        answer.tcp.as_mut().unwrap().window_scale = Some(2);
        assert_eq!(flows.track(&answer).window, 100);
        assert_eq!(
            flows.track(&segment(CLIENT, SERVER, 2, ACK, 0)).window,
            12_800
        );
        assert_eq!(flows.track(&segment(SERVER, CLIENT, 2, ACK, 0)).window, 400);
    }

    #[test]
    fn a_ping_series_is_one_flow() {
        let mut flows = Flows::default();
        let echo = |src, dst, icmp_type, sequence| Packet {
            src,
            dst,
            proto: ICMP,
            icmp_type,
            sport: 4711,
            dport: sequence,
            ..Packet::default()
        };
        for sequence in 0..5 {
            assert_eq!(flows.track(&echo(1, 2, 8, sequence)).flow, 0);
            assert_eq!(flows.track(&echo(2, 1, 0, sequence)).flow, 0);
        }
        assert_eq!(flows.count, 1);
    }
}
