// SPDX-License-Identifier: Apache-2.0
//! Other owners of an address: ARP probes, and who answers them (RFC 5227, section 2.1.1).
//!
//! Three probes a tenth of a second apart, and not up to two seconds: the address has been this host's for long, and
//! its answers are those of a local network.

use crate::AgentError;
use netio::interface::Interface;
use netio::packet_socket::PacketSocket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

const PROBES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(100);
/// For answers to the last probe.
const LAST_PAUSE: Duration = Duration::from_millis(200);

/// An ARP packet in its frame.
const FRAME_BYTES: usize = 42;
/// Frames are padded to the shortest of Ethernet (IEEE 802.3, without its checksum).
const SHORTEST_FRAME: usize = 60;
const RING_FRAME_BYTES: u32 = 128;
const BATCH_FRAMES: usize = 256;

type Mac = [u8; 6];

/// The MAC addresses other than `own_mac`, the interface's, that claim `address` on its network. Takes 0.4 s.
pub fn other_owners(
    interface: &str,
    address: Ipv4Addr,
    own_mac: &str,
) -> Result<Vec<String>, AgentError> {
    let invalid = || AgentError::Machine(format!("{own_mac:?} is not a MAC address"));
    let own_mac = parse_mac(own_mac).ok_or_else(invalid)?;
    let mut socket = Interface::find(interface)
        .and_then(|interface| PacketSocket::open(&interface, RING_FRAME_BYTES))
        .map_err(AgentError::file(interface))?;
    let probe = probe(own_mac, address);
    let mut owners = BTreeSet::new();
    for number in 1..=PROBES {
        socket
            .send(std::iter::once(&probe[..]))
            .map_err(AgentError::file(interface))?;
        let wait = if number == PROBES { LAST_PAUSE } else { PAUSE };
        listen(&mut socket, Instant::now() + wait, |frame| {
            owners.extend(claimant(frame, address).filter(|mac| *mac != own_mac));
        })?;
    }
    Ok(owners
        .into_iter()
        .map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":"))
        .collect())
}

fn listen(
    socket: &mut PacketSocket,
    end: Instant,
    mut on_frame: impl FnMut(&[u8]),
) -> Result<(), AgentError> {
    loop {
        while socket.receive(BATCH_FRAMES, |received| on_frame(received.frame)) == BATCH_FRAMES {}
        let remaining = end.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Ok(());
        }
        let timeout = Timespec::try_from(remaining).ok();
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// An ARP probe: a request about the address, whose sender has none.
fn probe(own_mac: Mac, address: Ipv4Addr) -> [u8; SHORTEST_FRAME] {
    let mut frame = [0; SHORTEST_FRAME];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&own_mac);
    frame[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame[22..28].copy_from_slice(&own_mac);
    frame[38..42].copy_from_slice(&address.octets());
    frame
}

/// The MAC address that an ARP packet, request or reply, claims the address for.
fn claimant(frame: &[u8], address: Ipv4Addr) -> Option<Mac> {
    let arp = frame.get(12..FRAME_BYTES)?;
    let is_claim = arp[..8] == [8, 6, 0, 1, 8, 0, 6, 4] && arp[16..20] == address.octets();
    is_claim.then(|| arp[10..16].try_into().ok())?
}

/// Read `02:00:00:00:01:01`.
fn parse_mac(text: &str) -> Option<Mac> {
    let bytes: Option<Vec<u8>> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).ok())
        .collect();
    bytes?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_replies_of_others_claim_an_address_and_probes_do_not() {
        let address = Ipv4Addr::new(10, 20, 0, 1);
        let mut frame = probe([2, 0, 0, 0, 0, 1], address);
        assert_eq!(claimant(&frame, address), None);
        frame[28..32].copy_from_slice(&address.octets());
        for operation in [1, 2] {
            frame[21] = operation;
            assert_eq!(claimant(&frame, address), Some([2, 0, 0, 0, 0, 1]));
        }
        assert_eq!(claimant(&frame, Ipv4Addr::new(10, 20, 0, 2)), None);
        assert_eq!(claimant(&frame[..FRAME_BYTES - 1], address), None);
    }

    #[test]
    fn a_mac_address_has_six_bytes() {
        assert_eq!(parse_mac("02:00:00:00:01:0a"), Some([2, 0, 0, 0, 1, 10]));
        for wrong in [
            "",
            "02:00:00:00:01",
            "02:00:00:00:01:0g",
            "02:00:00:00:01:01:01",
        ] {
            assert_eq!(parse_mac(wrong), None, "{wrong}");
        }
    }
}
