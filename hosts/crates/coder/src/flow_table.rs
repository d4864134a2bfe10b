// SPDX-License-Identifier: Apache-2.0
//! The bytes that each flow has sent, for the threshold from which flows are coded.

use crate::ipv4::{Ipv4, UDP};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

const TCP: u8 = 6;
/// Flows of each half: the memory is bounded, and the flows that sent last are remembered.
const FLOWS_MAX: usize = 32_768;

type Flow = (Ipv4Addr, Ipv4Addr, u8, [u8; 4]);

/// Remembers the flows that sent last, between 32 768 and twice as many.
#[derive(Debug, Default)]
pub(crate) struct FlowTable {
    recent: BTreeMap<Flow, u64>,
    older: BTreeMap<Flow, u64>,
}

impl FlowTable {
    /// Count a packet; the bytes that its flow had sent before.
    pub(crate) fn count(&mut self, packet: &Ipv4<'_>) -> u64 {
        let flow = flow(packet);
        if self.recent.len() >= FLOWS_MAX && !self.recent.contains_key(&flow) {
            self.older = std::mem::take(&mut self.recent);
        }
        let remembered = self.older.get(&flow).copied().unwrap_or(0);
        let bytes = self.recent.entry(flow).or_insert(remembered);
        let previous = *bytes;
        *bytes += packet.bytes.len() as u64;
        previous
    }
}

/// Fragments have no ports, and are flows of their own.
fn flow(packet: &Ipv4<'_>) -> Flow {
    let ports = match (packet.protocol(), packet.payload().first_chunk()) {
        (TCP | UDP, Some(ports)) if !packet.is_fragment() => *ports,
        _ => [0; 4],
    };
    (
        packet.source(),
        packet.destination(),
        packet.protocol(),
        ports,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipv4::tests::packet;

    fn of_port(table: &mut FlowTable, port: u32) -> u64 {
        let bytes = packet([10, 0, 0, 1], [10, 0, 0, 2], TCP, &port.to_be_bytes());
        table.count(&Ipv4::parse(&bytes).unwrap())
    }

    #[test]
    fn a_flow_has_its_ports() {
        let mut table = FlowTable::default();
        assert_eq!(
            [1, 1, 2, 1].map(|port| of_port(&mut table, port)),
            [0, 24, 0, 48]
        );
    }

    #[test]
    fn flows_are_forgotten_before_there_are_too_many_and_active_ones_are_not() {
        let mut table = FlowTable::default();
        for port in 1..=3 * FLOWS_MAX as u32 {
            of_port(&mut table, port);
            of_port(&mut table, 0);
        }
        assert!(table.recent.len() + table.older.len() <= 2 * FLOWS_MAX);
        assert_eq!(of_port(&mut table, 0), 24 * 3 * FLOWS_MAX as u64);
        assert_eq!(of_port(&mut table, 1), 0);
    }
}
