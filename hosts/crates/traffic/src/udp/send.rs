// SPDX-License-Identifier: Apache-2.0
//! The sending end: packets at a constant bit rate, whatever becomes of them.

use super::pace::Pace;
use super::packet::{DatagramHeader, PACKET_HEADERS_BYTES};
use super::stream::{Next, Packets, UdpFlows};
use super::{Message, RateChange, UdpSendConfig};
use crate::clock::{monotonic_at, monotonic_ns, realtime_ns};
use crate::error::TrafficError;
use crate::events::{Events, Wake};
use crate::job::{Input, emit};
use serde::Serialize;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

/// The packets sent; instants are real time, bytes those of the IP packets.
#[expect(clippy::struct_field_names, reason = "the names of the message")]
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(tag = "type", rename = "done")]
struct Sent {
    sent_packets: u64,
    sent_bytes: u64,
    /// The kernel did not take them: its queue was full, or nobody listens there.
    failed_packets: u64,
    first_ns: Option<i64>,
    last_ns: Option<i64>,
    /// Of flows of drawn sizes: those of which every packet was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    flows_completed: Option<u64>,
}

pub fn send(
    config: &UdpSendConfig,
    flows: Option<UdpFlows>,
    input: Input,
) -> Result<(), TrafficError> {
    let has_flows = flows.is_some();
    let mut packets = Packets::new(config.payload_bytes + PACKET_HEADERS_BYTES, flows);
    let mut sockets = Sockets::new(config.connect);
    sockets.of(0, 0)?; // so that an address that cannot be used is known now
    let mut events = Events::of_job(input)?;
    emit(&Message::Ready { listen: None })?;

    let start_ns = monotonic_at(config.start_at_ns);
    let end_ns = match config.duration_ns {
        0 => u64::MAX,
        duration_ns => start_ns.saturating_add(duration_ns),
    };
    let mut pace = Pace::new(config.rate_bit_s, start_ns);
    let mut payload = vec![0; config.payload_bytes];
    let mut sent = Sent::default();
    let at_ns = |change: &RateChange| start_ns.saturating_add(change.after_ns);
    let mut changes = config.changes.iter().peekable();
    let mut change_ns = changes.peek().map_or(u64::MAX, |change| at_ns(change));
    let mut wake_ns = start_ns;
    while pace.next_ns().min(change_ns) < end_ns {
        if events.wait(&mut Vec::with_capacity(4), Some(wake_ns))? == Wake::Stop {
            break;
        }
        let now_ns = monotonic_ns();
        pace.forget(now_ns);
        loop {
            while pace.next_ns() < (now_ns + 1).min(end_ns).min(change_ns) {
                let next = packets.next();
                pace.sent(next.packet_bytes);
                sent.send(&next, &mut sockets, &mut payload)?;
            }
            let Some(change) = changes.next_if(|change| at_ns(change) <= now_ns) else {
                break;
            };
            pace.change(change.rate_bit_s, change_ns);
            change_ns = changes.peek().map_or(u64::MAX, |change| at_ns(change));
        }
        wake_ns = pace.wake_ns(now_ns).min(change_ns);
    }
    sent.flows_completed = has_flows.then(|| packets.flows_completed());
    emit(&sent)
}

/// A socket for each flow in progress: flows have source ports of their own, as those of different programs have.
struct Sockets {
    to: SocketAddr,
    open: Vec<(u32, UdpSocket)>,
}

impl Sockets {
    fn new(to: SocketAddr) -> Self {
        Self {
            to,
            open: Vec::new(),
        }
    }

    /// The socket of `stream`, which has this turn from now on.
    fn of(&mut self, turn: usize, stream: u32) -> Result<&UdpSocket, TrafficError> {
        if self.open.get(turn).is_none_or(|(open, _)| *open != stream) {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
                .and_then(|socket| socket.connect(self.to).map(|()| socket))
                .and_then(|socket| socket.set_nonblocking(true).map(|()| socket))
                .map_err(|error| TrafficError::of(&format!("send to {}", self.to), &error))?;
            match self.open.get_mut(turn) {
                Some(place) => *place = (stream, socket),
                None => self.open.push((stream, socket)),
            }
        }
        Ok(&self.open[turn].1)
    }
}

impl Sent {
    fn send(
        &mut self,
        next: &Next,
        sockets: &mut Sockets,
        payload: &mut [u8],
    ) -> Result<(), TrafficError> {
        let socket = sockets.of(next.turn, next.stream)?;
        let sent_ns = realtime_ns();
        DatagramHeader {
            stream: next.stream,
            seq: next.seq,
            sent_ns,
        }
        .write(payload);
        match socket.send(&payload[..next.packet_bytes - PACKET_HEADERS_BYTES]) {
            Ok(_) => self.count(next.packet_bytes, sent_ns),
            Err(_) => self.failed_packets += 1,
        }
        Ok(())
    }

    fn count(&mut self, packet_bytes: usize, sent_ns: i64) {
        self.sent_packets += 1;
        self.sent_bytes += packet_bytes as u64;
        self.first_ns.get_or_insert(sent_ns);
        self.last_ns = Some(sent_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::assert_said;

    #[test]
    fn done_is_that_of_the_contract() {
        let mut sent = Sent::default();
        assert_said("udp", "send", &sent);
        sent.count(1500, 1_795_254_141_000_000_000);
        sent.count(1500, 1_795_254_141_001_000_000);
        assert_said("udp", "send", &sent);
        sent.flows_completed = Some(1);
        assert_said("udp", "send", &sent);
    }

    #[test]
    fn a_flow_keeps_its_port_and_the_next_one_has_another() {
        let mut sockets = Sockets::new(([127, 0, 0, 1], 9).into());
        let mut port = |turn, stream| sockets.of(turn, stream).unwrap().local_addr().unwrap();
        let (first, other) = (port(0, 0), port(1, 1));
        assert_eq!((port(0, 0), port(1, 1)), (first, other));
        assert_ne!(first, other);
        port(1, 2);
        assert_eq!(port(0, 0), first);
    }
}
