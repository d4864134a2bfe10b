// SPDX-License-Identifier: Apache-2.0
//! The MAC addresses from which each IPv4 address sent, and those that claimed it in ARP packets.

use serde::Serialize;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

const ETHERTYPE_ARP: [u8; 2] = [8, 6];
const ETHERTYPE_VLAN: [u8; 2] = [0x81, 0];
/// Hardware type Ethernet, protocol IPv4, and the lengths of their addresses (RFC 826).
const ARP_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// Pairs that are kept: a capture of foreign traffic could have any number.
const MOST_PAIRS: usize = 4096;

type Mac = [u8; 6];

/// An IPv4 address with one of its MAC addresses.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Sender {
    /// The IPv4 address.
    pub address: Ipv4Addr,
    /// `02:00:00:00:01:01`.
    pub mac: String,
    /// Whether an ARP packet claimed the address for it.
    pub arp: bool,
    /// Whether IPv4 packets from the address came from it.
    pub ipv4: bool,
}

/// Whether a pair was seen by ARP, and by IPv4.
type Seen = [bool; 2];

/// All senders of a capture.
#[derive(Debug, Default)]
pub struct Senders {
    pairs: BTreeMap<(u32, Mac), Seen>,
    /// By flow and direction the MAC address of the packet before: most packets need no look-up.
    last_macs: Vec<[Option<Mac>; 2]>,
}

impl Senders {
    /// Take the frame of an IPv4 packet; `flow` is its flow's number.
    pub fn add_packet(&mut self, frame: &[u8], flow: u32, src: u32, dst: u32) {
        let Some(mac) = mac_at(frame, 6) else {
            return;
        };
        let flow = flow as usize;
        if self.last_macs.len() <= flow {
            self.last_macs.resize(flow + 1, [None; 2]);
        }
        let last_mac = &mut self.last_macs[flow][usize::from(src < dst)];
        if *last_mac != Some(mac) {
            *last_mac = Some(mac);
            self.add(src, mac, [false, true]);
        }
    }

    /// Take a frame that is no IPv4 packet: only ARP packets count. Probes (RFC 5227) claim nothing.
    pub fn add_other_frame(&mut self, frame: &[u8]) {
        let at = if frame.get(12..14) == Some(&ETHERTYPE_VLAN) {
            16
        } else {
            12
        };
        let Some(packet) = frame.get(at + 2..at + 22) else {
            return;
        };
        if frame[at..at + 2] != ETHERTYPE_ARP || packet[..6] != ARP_IPV4 {
            return;
        }
        let address = u32::from_be_bytes([packet[14], packet[15], packet[16], packet[17]]);
        if let (Some(mac), true) = (mac_at(packet, 8), address != 0) {
            self.add(address, mac, [true, false]);
        }
    }

    /// All pairs, by address.
    pub fn into_list(self) -> Vec<Sender> {
        self.pairs
            .into_iter()
            .map(|((address, mac), [arp, ipv4])| Sender {
                address: Ipv4Addr::from_bits(address),
                mac: mac.map(|byte| format!("{byte:02x}")).join(":"),
                arp,
                ipv4,
            })
            .collect()
    }

    fn add(&mut self, address: u32, mac: Mac, [arp, ipv4]: Seen) {
        if self.pairs.len() < MOST_PAIRS || self.pairs.contains_key(&(address, mac)) {
            let seen = self.pairs.entry((address, mac)).or_default();
            *seen = [seen[0] | arp, seen[1] | ipv4];
        }
    }
}

fn mac_at(bytes: &[u8], at: usize) -> Option<Mac> {
    bytes.get(at..at + 6)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arp(sender: [u8; 6], address: [u8; 4]) -> Vec<u8> {
        let mut frame = vec![0xff; 6];
        frame.extend(sender);
        frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        frame.extend(sender);
        frame.extend(address);
        frame.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 9]);
        frame
    }

    #[test]
    fn two_owners_of_an_address_are_two_pairs() {
        let mut senders = Senders::default();
        let frame = |mac: u8| [[0; 6], [2, 0, 0, 0, 0, mac]].concat();
        for mac in [1, 1, 7, 1] {
            senders.add_packet(&frame(mac), 3, 0x0a14_0001, 0x0a0a_0001);
        }
        senders.add_packet(&frame(9), 3, 0x0a0a_0001, 0x0a14_0001);
        senders.add_other_frame(&arp([2, 0, 0, 0, 0, 7], [10, 20, 0, 1]));
        let mut tagged = arp([2, 0, 0, 0, 0, 8], [10, 20, 0, 1]);
        tagged.splice(12..12, [0x81, 0, 0, 101]);
        senders.add_other_frame(&tagged);
        let seen: Vec<String> = senders
            .into_list()
            .iter()
            .map(|one| format!("{} {} {} {}", one.address, one.mac, one.arp, one.ipv4))
            .collect();
        assert_eq!(
            seen,
            [
                "10.10.0.1 02:00:00:00:00:09 false true",
                "10.20.0.1 02:00:00:00:00:01 false true",
                "10.20.0.1 02:00:00:00:00:07 true true",
                "10.20.0.1 02:00:00:00:00:08 true false",
            ]
        );
    }

    #[test]
    fn probes_and_cut_or_foreign_frames_claim_nothing() {
        let mut senders = Senders::default();
        senders.add_other_frame(&arp([2, 0, 0, 0, 0, 7], [0, 0, 0, 0]));
        senders.add_other_frame(&arp([2, 0, 0, 0, 0, 7], [10, 20, 0, 1])[..30]);
        senders.add_other_frame(&[0; 60]);
        senders.add_packet(&[0; 8], 0, 1, 2);
        assert_eq!(senders.into_list(), []);
    }

    #[test]
    fn no_number_of_addresses_takes_much_memory() {
        let mut senders = Senders::default();
        for number in 0..10_000_u32 {
            let [.., a, b] = number.to_be_bytes();
            senders.add_other_frame(&arp([2, 0, 0, 0, a, b], [10, 0, a, b.max(1)]));
        }
        assert_eq!(senders.into_list().len(), MOST_PAIRS);
    }
}
