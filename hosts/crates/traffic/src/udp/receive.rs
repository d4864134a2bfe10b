// SPDX-License-Identifier: Apache-2.0
//! The receiver of UDP streams: packets received, their times, and missing sequence numbers.
//!
//! Packets are stamped by the kernel as they come in, so a receiver that runs late measures no less exactly; those its
//! socket could not hold are distinguished from those that never came.

use super::{DatagramHeader, Message, PACKET_HEADERS_BYTES, UdpReceiveConfig};
use crate::events::{Events, Wake};
use crate::job::{Input, SECOND_NS, emit, failed, monotonic_ns, realtime_ns};
use crate::socket::is_not_ready;
use nix::sys::socket::sockopt::{ReceiveTimestampns, RxqOvfl};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt};
use nix::sys::time::TimeValLike;
use rustix::event::epoll::EventFlags;
use serde::Serialize;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

const COUNTERS_INTERVAL_NS: u64 = SECOND_NS / 10;

/// Asked for; the kernel gives at most `net.core.rmem_max`.
const BUFFER_BYTES: usize = 8 << 20;

/// Packets read between two looks at the clock.
const BATCH_PACKETS: usize = 256;

const SOCKET: u64 = 0;

/// Sums so far; bytes are those of the IP packets, instants real time.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "type", rename = "counters")]
struct Counters {
    t_ns: i64,
    packets: u64,
    bytes: u64,
    /// When the last of them came.
    last_ns: Option<i64>,
    /// As [`Received`] has them.
    lost_packets: u64,
    reordered_packets: u64,
    jitter_ns: Option<u64>,
}

/// One packet, where the configuration asks for them.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "type", rename = "packet")]
struct PacketLine {
    seq: u64,
    bytes: u64,
    sent_ns: i64,
    received_ns: i64,
}

/// Counters of the receiver.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(tag = "type", rename = "done")]
struct Received {
    packets: u64,
    bytes: u64,
    /// Numbers missing below the highest one that came.
    lost_packets: u64,
    /// Came after one with a higher number, or twice.
    reordered_packets: u64,
    /// Reached this host, but the receiver did not keep up; among the lost.
    overflowed_packets: u64,
    /// Too short to be of a stream; not counted elsewhere.
    foreign_packets: u64,
    first_ns: Option<i64>,
    last_ns: Option<i64>,
    /// Of the bytes after the first packet, in the time from it to the last one.
    rate_bit_s: Option<f64>,
    /// From the sender's clock to the receiver's: meaningful where they are one.
    delay_min_ns: Option<i64>,
    delay_max_ns: Option<i64>,
    /// Streams, or flows, of which anything came.
    streams: u64,
    /// Interarrival jitter at the end (RFC 3550, section 6.4.1), of the sender with most of it.
    jitter_ns: Option<u64>,
    /// The most that it ever was.
    jitter_max_ns: Option<u64>,
}

/// Sequence numbers of one stream.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    packets: u64,
    /// Of the highest number, plus one.
    expected: u64,
}

impl Stream {
    fn missing(&self) -> u64 {
        self.expected.saturating_sub(self.packets)
    }
}

#[derive(Debug, Default)]
struct StreamStatistics {
    received: Received,
    first_bytes: u64,
    streams: HashMap<(SocketAddr, u32), Stream>,
    /// By sender: the streams of one have a clock and a path in common.
    jitters: HashMap<IpAddr, InterarrivalJitter>,
}

/// A received packet: payload bytes, its sender, and the kernel's control messages about it.
struct Arrival {
    payload_bytes: usize,
    from: SocketAddr,
    received_ns: i64,
    overflowed: Option<u32>,
}

pub fn receive(config: &UdpReceiveConfig, input: Input) -> io::Result<()> {
    let socket = open(config.listen).map_err(failed(format!("receive at {}", config.listen)))?;
    let listen = socket.local_addr()?.as_socket();
    let mut events = Events::for_job(input)?;
    events.add(&socket, SOCKET, EventFlags::IN)?;
    emit(&Message::Ready { listen })?;

    let mut stats = StreamStatistics::default();
    let mut payload = vec![0; 1 << 16];
    let mut control = vec![0; 256];
    let mut tick_ns = monotonic_ns() + COUNTERS_INTERVAL_NS;
    let mut ready = Vec::with_capacity(4);
    loop {
        let wake = events.wait(&mut ready, Some(tick_ns))?;
        for _ in 0..BATCH_PACKETS {
            let Some(arrival) = recv(&socket, &mut payload, &mut control)? else {
                break;
            };
            let packet = stats.record(&arrival, &payload[..arrival.payload_bytes]);
            if let Some(packet) = packet.filter(|_| config.each) {
                emit(&packet)?;
            }
        }
        if wake == Wake::Stop {
            return emit(&stats.done());
        }
        if monotonic_ns() >= tick_ns {
            if !config.quiet {
                emit(&stats.counters(realtime_ns()))?;
            }
            tick_ns = monotonic_ns() + COUNTERS_INTERVAL_NS;
        }
    }
}

fn open(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM.nonblocking(),
        Some(Protocol::UDP),
    )?;
    socket.set_recv_buffer_size(BUFFER_BYTES)?;
    setsockopt(&socket, ReceiveTimestampns, &true)?;
    setsockopt(&socket, RxqOvfl, &1)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn recv(socket: &Socket, payload: &mut [u8], control: &mut [u8]) -> io::Result<Option<Arrival>> {
    let mut slices = [IoSliceMut::new(payload)];
    let received = recvmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &mut slices,
        Some(control),
        MsgFlags::empty(),
    );
    let message = match received.map_err(io::Error::from) {
        Ok(message) => message,
        Err(error) if is_not_ready(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let (mut received_ns, mut overflowed) = (None, None);
    for control in message.cmsgs()? {
        match control {
            ControlMessageOwned::ScmTimestampns(stamp) => {
                received_ns = Some(stamp.num_nanoseconds());
            }
            ControlMessageOwned::RxqOvfl(packets) => overflowed = Some(packets),
            _ => {}
        }
    }
    let from = message.address.and_then(|address| {
        address
            .as_sockaddr_in()
            .map(|&v4| SocketAddr::V4(v4.into()))
    });
    Ok(Some(Arrival {
        payload_bytes: message.bytes,
        from: from.unwrap_or_else(|| ([0, 0, 0, 0], 0).into()),
        received_ns: received_ns.unwrap_or_else(realtime_ns),
        overflowed,
    }))
}

impl StreamStatistics {
    fn record(&mut self, arrival: &Arrival, payload: &[u8]) -> Option<PacketLine> {
        let received = &mut self.received;
        if let Some(packets) = arrival.overflowed {
            received.overflowed_packets = u64::from(packets);
        }
        let Some(header) = DatagramHeader::read(payload) else {
            received.foreign_packets += 1;
            return None;
        };
        let bytes = (payload.len() + PACKET_HEADERS_BYTES) as u64;
        received.packets += 1;
        received.bytes += bytes;
        if received.first_ns.is_none() {
            received.first_ns = Some(arrival.received_ns);
            self.first_bytes = bytes;
        }
        received.last_ns = Some(arrival.received_ns);
        let delay_ns = arrival.received_ns - header.sent_ns;
        let least = received.delay_min_ns.unwrap_or(delay_ns);
        let most = received.delay_max_ns.unwrap_or(delay_ns);
        received.delay_min_ns = Some(least.min(delay_ns));
        received.delay_max_ns = Some(most.max(delay_ns));

        self.jitters
            .entry(arrival.from.ip())
            .or_default()
            .record(delay_ns);

        let stream = self
            .streams
            .entry((arrival.from, header.stream))
            .or_default();
        let missing = stream.missing();
        stream.packets += 1;
        if header.seq < stream.expected {
            received.reordered_packets += 1;
        } else {
            stream.expected = header.seq.saturating_add(1);
        }
        received.lost_packets = received.lost_packets - missing + stream.missing();
        Some(PacketLine {
            seq: header.seq,
            bytes,
            sent_ns: header.sent_ns,
            received_ns: arrival.received_ns,
        })
    }

    fn counters(&self, t_ns: i64) -> Counters {
        Counters {
            t_ns,
            packets: self.received.packets,
            bytes: self.received.bytes,
            last_ns: self.received.last_ns,
            lost_packets: self.received.lost_packets,
            reordered_packets: self.received.reordered_packets,
            jitter_ns: self.jitter_ns(),
        }
    }

    fn jitter_ns(&self) -> Option<u64> {
        self.jitters.values().map(InterarrivalJitter::now_ns).max()
    }

    fn done(&self) -> Received {
        let received = self.received;
        let rate_bit_s = received
            .first_ns
            .zip(received.last_ns)
            .filter(|(first_ns, last_ns)| last_ns > first_ns)
            .map(|(first_ns, last_ns)| {
                let seconds = (last_ns - first_ns) as f64 / SECOND_NS as f64;
                (received.bytes - self.first_bytes) as f64 * 8.0 / seconds
            });
        Received {
            streams: self.streams.len() as u64,
            jitter_ns: self.jitter_ns(),
            jitter_max_ns: self.jitters.values().map(InterarrivalJitter::max_ns).max(),
            rate_bit_s,
            ..received
        }
    }
}

/// The interarrival jitter of one sender (RFC 3550, section 6.4.1): how much the spacing of packets changes on their way.
///
/// J += (|D| - J) / 16 with every packet, where D is the difference of its transit time to that of the packet that
/// came before it. Kept in sixteenths of a nanosecond, as in the RFC's appendix A.8.
#[derive(Clone, Copy, Debug, Default)]
struct InterarrivalJitter {
    transit_ns: Option<i64>,
    sixteenths: u64,
    max_sixteenths: u64,
}

impl InterarrivalJitter {
    /// A packet came that was so long under way, by whatever clocks.
    pub fn record(&mut self, transit_ns: i64) {
        if let Some(before_ns) = self.transit_ns.replace(transit_ns) {
            let decay = (self.sixteenths + 8) >> 4;
            self.sixteenths += transit_ns.abs_diff(before_ns);
            self.sixteenths -= decay;
            self.max_sixteenths = self.max_sixteenths.max(self.sixteenths);
        }
    }

    /// Its present value.
    pub fn now_ns(&self) -> u64 {
        self.sixteenths >> 4
    }

    /// The most it ever was.
    pub fn max_ns(&self) -> u64 {
        self.max_sixteenths >> 4
    }
}

#[cfg(test)]
mod jitter_tests {
    use super::*;

    #[test]
    fn even_spacing_has_none_whatever_the_delay() {
        let mut jitter = InterarrivalJitter::default();
        for _ in 0..100 {
            jitter.record(250_000_000);
        }
        assert_eq!((jitter.now_ns(), jitter.max_ns()), (0, 0));
    }

    #[test]
    fn it_comes_near_the_mean_change_and_fades_by_a_sixteenth() {
        let mut jitter = InterarrivalJitter::default();
        for packet in 0..1000 {
            jitter.record(if packet % 2 == 0 { 0 } else { 1_000_000 });
        }
        assert!(jitter.now_ns().abs_diff(1_000_000) < 100, "{jitter:?}");
        let before = jitter.now_ns();
        jitter.record(1_000_000);
        assert!(
            jitter.now_ns().abs_diff(before * 15 / 16) < 100,
            "{jitter:?}"
        );
        assert!(jitter.max_ns().abs_diff(1_000_000) < 100);
    }

    #[test]
    fn the_first_change_counts_a_sixteenth() {
        let mut jitter = InterarrivalJitter::default();
        jitter.record(5);
        jitter.record(-1595);
        assert_eq!(jitter.now_ns(), 100);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::assert_in_contract;

    const SENT_NS: i64 = 1_795_254_141_000_000_000;

    /// Takes packets of 1500 bytes with these numbers, one a millisecond, each 250 ms under way.
    fn stats(numbers: &[u64]) -> StreamStatistics {
        let mut stats = StreamStatistics::default();
        for (index, &seq) in (0..).zip(numbers) {
            let sent_ns = SENT_NS + index * 1_000_000;
            let mut payload = vec![0; 1472];
            let header = DatagramHeader {
                stream: 0,
                seq,
                sent_ns,
            };
            header.write(&mut payload);
            let arrival = Arrival {
                payload_bytes: payload.len(),
                from: ([10, 10, 1, 1], 40_000).into(),
                received_ns: sent_ns + 250_000_000,
                overflowed: None,
            };
            let each = stats.record(&arrival, &payload).unwrap();
            if index == 0 {
                assert_in_contract("udp", "receive", &each);
            }
        }
        stats
    }

    #[test]
    fn messages_are_those_of_the_contract() {
        assert_in_contract("udp", "receive", &StreamStatistics::default().done());
        let stats = stats(&[0, 1, 3, 2, 5]);
        assert_in_contract("udp", "receive", &stats.counters(SENT_NS + 300_000_000));
        assert_in_contract("udp", "receive", &stats.done());
    }

    #[test]
    fn a_packet_that_comes_late_is_not_lost() {
        let done = stats(&[0, 2, 3, 1]).done();
        assert_eq!((done.lost_packets, done.reordered_packets), (0, 1));
    }

    #[test]
    fn the_rate_counts_from_the_first_packet_to_the_last() {
        assert_eq!(stats(&[0, 1, 2]).done().rate_bit_s, Some(12_000_000.0));
        assert_eq!(stats(&[0]).done().rate_bit_s, None);
    }

    #[test]
    fn what_is_too_short_for_a_header_is_told_apart() {
        let mut stats = StreamStatistics::default();
        let arrival = Arrival {
            payload_bytes: 3,
            from: ([10, 10, 1, 1], 40_000).into(),
            received_ns: SENT_NS,
            overflowed: Some(2),
        };
        assert!(stats.record(&arrival, b"abc").is_none());
        let done = stats.done();
        assert_eq!(
            (done.packets, done.foreign_packets, done.overflowed_packets),
            (0, 1, 2)
        );
    }
}
