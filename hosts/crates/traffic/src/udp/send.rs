// SPDX-License-Identifier: Apache-2.0
//! The sending end: packets at a constant bit rate, whatever becomes of them.

use super::stream::{NextPacket, Packets};
use super::{DatagramHeader, Message, PACKET_HEADERS_BYTES, RateChange, UdpSendConfig};
use crate::events::{Events, Wake};
use crate::job::{Input, emit, failed, monotonic_at, monotonic_ns, realtime_ns};
use serde::Serialize;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

/// Between two bursts at least: what timers can do without spinning, a few packets at tens of Mbit/s.
const BURST_INTERVAL_NS: u64 = 500_000;

/// A sender that was held up for longer does not send what it missed: that burst would fill a queue by itself.
const CATCH_UP_NS: u64 = 10_000_000;

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

pub fn send(config: &UdpSendConfig, input: Input) -> io::Result<()> {
    let packet_bytes = config.payload_bytes + PACKET_HEADERS_BYTES;
    let mut packets = Packets::new(packet_bytes, config.flows.clone());
    let mut sockets = Sockets::new([&[config.connect], &*config.further].concat());
    sockets.socket(0, 0)?; // so that an address that cannot be used is known now
    let mut events = Events::for_job(input)?;
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
        pace.skip_overdue(now_ns);
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
    sent.flows_completed = (config.flows.as_ref()).map(|_| packets.flows_completed());
    emit(&sent)
}

/// A socket for each flow in progress: flows have source ports of their own, as those of different programs have.
struct Sockets {
    to: Vec<SocketAddr>,
    open: Vec<(u32, UdpSocket)>,
}

impl Sockets {
    fn new(to: Vec<SocketAddr>) -> Self {
        Self {
            to,
            open: Vec::new(),
        }
    }

    /// The socket of `stream`, which has this turn from now on.
    fn socket(&mut self, turn: usize, stream: u32) -> io::Result<&UdpSocket> {
        if self.open.get(turn).is_none_or(|(open, _)| *open != stream) {
            let to = self.to[stream as usize % self.to.len()];
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
                .and_then(|socket| socket.connect(to).map(|()| socket))
                .and_then(|socket| socket.set_nonblocking(true).map(|()| socket))
                .map_err(failed(format!("send to {to}")))?;
            match self.open.get_mut(turn) {
                Some(slot) => *slot = (stream, socket),
                None => self.open.push((stream, socket)),
            }
        }
        Ok(&self.open[turn].1)
    }
}

impl Sent {
    fn send(
        &mut self,
        packet: &NextPacket,
        sockets: &mut Sockets,
        payload: &mut [u8],
    ) -> io::Result<()> {
        let socket = sockets.socket(packet.turn, packet.stream)?;
        let sent_ns = realtime_ns();
        DatagramHeader {
            stream: packet.stream,
            seq: packet.seq,
            sent_ns,
        }
        .write(payload);
        match socket.send(&payload[..packet.packet_bytes - PACKET_HEADERS_BYTES]) {
            Ok(_) => self.count(packet.packet_bytes, sent_ns),
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

/// The schedule of a sender at a constant bit rate; pure, on a clock passed in.
#[derive(Clone, Debug)]
struct Pace {
    rate_bit_s: u64,
    /// When the first packet was due, later by what was not caught up with.
    start_ns: u64,
    /// Bits sent since `start_ns`.
    bits: u128,
}

impl Pace {
    /// Packets at `rate_bit_s`, the first one due at `start_ns`.
    fn new(rate_bit_s: u64, start_ns: u64) -> Self {
        Self {
            rate_bit_s,
            start_ns,
            bits: 0,
        }
    }

    /// When the next packet is due: when those before it have taken their time at the rate.
    fn next_ns(&self) -> u64 {
        let elapsed_ns = self.bits * 1_000_000_000 / u128::from(self.rate_bit_s);
        self.start_ns
            .saturating_add(u64::try_from(elapsed_ns).unwrap_or(u64::MAX))
    }

    /// The rate is another one from `at_ns` on, before which no packet is due.
    fn change(&mut self, rate_bit_s: u64, at_ns: u64) {
        let remaining_ns = self.next_ns().saturating_sub(at_ns);
        self.bits = u128::from(remaining_ns) * u128::from(self.rate_bit_s) / 1_000_000_000;
        self.start_ns = at_ns;
        self.rate_bit_s = rate_bit_s;
    }

    /// Skip packets that were due too long before `now_ns`.
    fn skip_overdue(&mut self, now_ns: u64) {
        let late_ns = now_ns.saturating_sub(self.next_ns());
        if late_ns > CATCH_UP_NS {
            self.start_ns += late_ns - CATCH_UP_NS;
        }
    }

    /// A packet of so many bytes was sent.
    fn sent(&mut self, packet_bytes: usize) {
        self.bits += packet_bytes as u128 * 8;
    }

    /// When to look again, having sent at `now_ns`.
    fn wake_ns(&self, now_ns: u64) -> u64 {
        self.next_ns().max(now_ns + BURST_INTERVAL_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::assert_in_contract;
    use proptest::prelude::*;

    #[test]
    fn done_is_that_of_the_contract() {
        let mut sent = Sent::default();
        assert_in_contract("udp", "send", &sent);
        sent.count(1500, 1_795_254_141_000_000_000);
        sent.count(1500, 1_795_254_141_001_000_000);
        assert_in_contract("udp", "send", &sent);
        sent.flows_completed = Some(1);
        assert_in_contract("udp", "send", &sent);
    }

    #[test]
    fn a_flow_keeps_its_port_and_the_next_one_has_another() {
        let mut sockets = Sockets::new(vec![([127, 0, 0, 1], 9).into()]);
        let mut port = |turn, stream| sockets.socket(turn, stream).unwrap().local_addr().unwrap();
        let (first, other) = (port(0, 0), port(1, 1));
        assert_eq!((port(0, 0), port(1, 1)), (first, other));
        assert_ne!(first, other);
        port(1, 2);
        assert_eq!(port(0, 0), first);
    }

    #[test]
    fn flows_go_to_the_receivers_in_turn() {
        let receivers: Vec<SocketAddr> = (1..4).map(|end| ([127, 0, 0, end], 9).into()).collect();
        let mut sockets = Sockets::new(receivers.clone());
        for stream in 0..9 {
            let socket = sockets.socket(stream as usize % 2, stream).unwrap();
            assert_eq!(socket.peer_addr().unwrap(), receivers[stream as usize % 3]);
        }
    }

    /// Sends what is due at `now_ns`; the bytes of it.
    fn take(pace: &mut Pace, now_ns: u64, mut sizes: impl Iterator<Item = usize>) -> usize {
        pace.skip_overdue(now_ns);
        let mut bytes = 0;
        while pace.next_ns() <= now_ns {
            let packet = sizes.next().unwrap();
            pace.sent(packet);
            bytes += packet;
        }
        bytes
    }

    #[test]
    fn a_second_holds_exactly_the_rate() {
        let mut pace = Pace::new(12_000_000, 0);
        let sent: usize = (0..1000)
            .map(|ms| take(&mut pace, ms * 1_000_000, std::iter::repeat(1500)))
            .sum();
        assert_eq!(sent, 1000 * 1500);
    }

    #[test]
    fn a_long_hold_up_is_not_caught_up_with() {
        let mut pace = Pace::new(12_000_000, 0);
        assert_eq!(take(&mut pace, 0, std::iter::repeat(1500)), 1500);
        let burst = take(&mut pace, 5_000_000_000, std::iter::repeat(1500));
        assert_eq!(burst, 11 * 1500);
        assert_eq!(pace.next_ns(), 5_001_000_000);
    }

    #[test]
    fn a_packet_that_is_due_waits_by_both_rates_for_their_parts() {
        let mut pace = Pace::new(12_000_000, 0);
        pace.sent(1500);
        pace.change(6_000_000, 250_000);
        assert_eq!(pace.next_ns(), 250_000 + 2 * 750_000);
        pace.change(12_000_000, 1_750_000);
        assert_eq!(pace.next_ns(), 1_750_000);
    }

    proptest! {
        #[test]
        fn never_ahead_of_the_rate_by_more_than_a_packet_nor_behind(
            rate_bit_s in 10_000..1_000_000_000_u64,
            sizes in prop::collection::vec(48..=1500_usize, 1..20),
            steps in prop::collection::vec(0..CATCH_UP_NS, 1..50),
        ) {
            let mut pace = Pace::new(rate_bit_s, 7);
            let mut packets = sizes.into_iter().cycle();
            let (mut now_ns, mut sent) = (7, 0);
            for step in steps {
                now_ns += step;
                sent += take(&mut pace, now_ns, packets.by_ref());
                let bits = sent as u128 * 8 * 1_000_000_000;
                let due = u128::from(rate_bit_s) * u128::from(now_ns - 7);
                // One nanosecond of rounding at the rate.
                let slack = u128::from(rate_bit_s);
                prop_assert!(bits <= due + 1500 * 8 * 1_000_000_000 + slack);
                prop_assert!(bits + slack >= due);
                prop_assert!(pace.wake_ns(now_ns) > now_ns);
            }
        }
    }
}
