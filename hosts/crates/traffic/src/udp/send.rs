// SPDX-License-Identifier: Apache-2.0
//! The sending end: packets at a constant bit rate, whatever becomes of them.

use super::pace::Pace;
use super::packet::{Header, PACKET_HEADERS_BYTES};
use super::{Message, SendConfig};
use crate::clock::{monotonic_at, monotonic_ns, realtime_ns};
use crate::events::{Events, Wake};
use crate::failure::Failure;
use crate::job::say;
use serde::Serialize;
use std::net::{Ipv4Addr, UdpSocket};

/// What was sent; instants are real time, bytes those of the IP packets.
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
}

pub fn send(config: &SendConfig) -> Result<(), Failure> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|socket| socket.connect(config.connect).map(|()| socket))
        .map_err(|error| Failure::of(&format!("send to {}", config.connect), &error))?;
    socket.set_nonblocking(true)?;
    let mut events = Events::of_job()?;
    say(&Message::Ready { listen: None })?;

    let start_ns = monotonic_at(config.start_at_ns);
    let end_ns = match config.duration_ns {
        0 => u64::MAX,
        duration_ns => start_ns.saturating_add(duration_ns),
    };
    let packet_bytes = config.payload_bytes + PACKET_HEADERS_BYTES;
    let mut pace = Pace::new(config.rate_bit_s, packet_bytes, start_ns);
    let mut payload = vec![0; config.payload_bytes];
    let mut sent = Sent::default();
    let mut wake_ns = start_ns;
    let mut seq = 0;
    while pace.next_ns() < end_ns {
        if events.wait(&mut Vec::with_capacity(4), Some(wake_ns))? == Wake::Stop {
            break;
        }
        let now_ns = monotonic_ns();
        for _ in 0..pace.take(now_ns.min(end_ns - 1)) {
            let sent_ns = realtime_ns();
            Header {
                stream: 0,
                seq,
                sent_ns,
            }
            .write(&mut payload);
            seq += 1;
            match socket.send(&payload) {
                Ok(_) => sent.count(packet_bytes, sent_ns),
                Err(_) => sent.failed_packets += 1,
            }
        }
        wake_ns = pace.wake_ns(now_ns);
    }
    say(&sent)
}

impl Sent {
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
    }
}
