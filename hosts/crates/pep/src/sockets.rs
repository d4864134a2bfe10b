// SPDX-License-Identifier: Apache-2.0
//! The proxy's sockets: listeners, connections to servers, packet sockets that see first segments, raw ones.
//!
//! Each carries the mark of its pair of legs. All TCP sockets linger for no time: whatever closes one that is not closed
//! on both sides yet, the death of this process included, resets the connection, so that no peer takes what is missing
//! for an end.

use crate::config::{Config, Pair, Side, SocketSettings};
use crate::connection::Addresses;
use crate::first_segment::FirstSegment;
use atoll_job::failed;
use atoll_netio::interface::Interface;
use atoll_netio::syn_socket::SynSocket;
use atoll_netio::tcp_options::{
    accept_fast_open, set_fast_open_connect, set_handshake_repeats, set_max_pacing_rate,
    set_window_clamp,
};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::sockopt;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Connections that may wait to be accepted: as many as `net.core.somaxconn` allows, which caps it (listen(2)).
const BACKLOG: i32 = i32::MAX;

/// How often a SYN-ACK is repeated: after 1, 3 and 7 s, and given up after 15 s.
const SYN_ACKS_REPEATED: u32 = 3;

/// How often the SYN of a multiplexed connection is repeated before a new attempt.
const SYNS_REPEATED: u32 = 3;

/// Least and most unsent bytes in the socket of a multiplexed connection; between them, what its rate sends in `UNSENT_NS`.
/// A new stream waits for as many, and a program that is off the processor for longer leaves the link idle.
const UNSENT_BYTES: (u64, u64) = (1 << 16, 1 << 22);
const UNSENT_NS: u64 = 32_000_000;

/// Only the headers are of this program's making: "raw" (raw(7), `IPPROTO_RAW`).
const RAW: i32 = 255;

/// The sockets of one side of a pair.
pub(crate) struct SideSockets {
    pub pair: usize,
    /// The clients' side.
    pub side: Side,
    pub interface: String,
    pub listener: Socket,
    pub syns: SynSocket,
    /// Raw: sends to this machine's own listener.
    to_listener: Socket,
    /// Raw: sends to clients.
    to_clients: Socket,
}

/// Open the sockets of all sides of all pairs.
pub(crate) fn open(config: &Config) -> io::Result<Vec<SideSockets>> {
    let sides =
        config.pairs.iter().enumerate().flat_map(|(number, pair)| {
            Side::BOTH.map(|side| open_side(config, number, pair, side))
        });
    sides.collect()
}

fn open_side(config: &Config, number: usize, pair: &Pair, side: Side) -> io::Result<SideSockets> {
    let name = pair.interface(side);
    let interface = Interface::find_up(name).map_err(|error| {
        atoll_job::bad_configuration(format!("cannot receive at {name}: {error}"))
    })?;
    let port = *pair.ports.of(side);
    let listener = open_transparent(pair.mark, config.legs.of(side), config.silence_ns)?;
    let action = format!("listen on 127.0.0.1:{port}");
    let set_up = |listener: &Socket| -> io::Result<()> {
        set_handshake_repeats(listener, SYN_ACKS_REPEATED)?;
        listener.bind(&SocketAddrV4::new(Ipv4Addr::LOCALHOST, port).into())?;
        listen(config, side, listener)
    };
    set_up(&listener).map_err(failed(action))?;
    let listener_mark = match side {
        Side::World => pair.mark | config.local_mark | config.world_mark,
        Side::Island => pair.mark | config.local_mark,
    };
    let open_raw = |mark| open_raw(mark).map_err(failed("open a raw socket"));
    Ok(SideSockets {
        pair: number,
        side,
        listener,
        syns: interface
            .mtu()
            .and_then(|mtu| SynSocket::open(&interface, mtu))
            .map_err(failed(format!("receive at {}", interface.name)))?,
        to_listener: open_raw(listener_mark)?,
        to_clients: open_raw(pair.mark)?,
        interface: interface.name,
    })
}

/// Let as many connections wait at a listener as settings allow; it may listen already.
fn listen(config: &Config, side: Side, listener: &Socket) -> io::Result<()> {
    listener.listen(BACKLOG)?;
    if config.legs.of(side).fast_open {
        accept_fast_open(listener, config.pending_max as u32)?;
    }
    Ok(())
}

impl SideSockets {
    /// Give the listener other limits.
    pub(crate) fn change(&self, config: &Config) -> io::Result<()> {
        listen(config, self.side, &self.listener)?;
        set_silence(&self.listener, config.silence_ns)
    }

    /// Deliver a first segment to the listener, as if it had just arrived.
    pub(crate) fn release(&self, first: &FirstSegment) -> io::Result<()> {
        let to = SocketAddrV4::new(*first.server.ip(), 0);
        self.to_listener.send_to(first.packet(), &to.into())?;
        Ok(())
    }

    /// Send a packet to the client of a first segment. A packet that cannot be sent is one that is lost.
    pub(crate) fn answer(&self, first: &FirstSegment, packet: &[u8]) {
        let to = SocketAddrV4::new(*first.client.ip(), 0);
        let _ = self.to_clients.send_to(packet, &to.into());
    }
}

/// Begin to connect to a server from the address and port of its client; the socket becomes writable when the connection is
/// established or has failed. `with_data`: the SYN leaves with the first data that the socket is given.
pub(crate) fn connect(
    config: &Config,
    pair: usize,
    side: Side,
    (client, server): Addresses,
    with_data: bool,
) -> io::Result<Socket> {
    let settings = config.legs.of(side);
    let socket = open_transparent(config.pairs[pair].mark, settings, config.silence_ns)?;
    if with_data {
        set_fast_open_connect(&socket)?;
    }
    socket.bind(&client.into())?;
    match socket.connect(&SockAddr::from(server)) {
        Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => Err(error),
        _ => Ok(socket),
    }
}

/// The most of a multiplexed connection that is unsent in its socket.
pub(crate) fn multiplexed_unsent_bytes(pacing_bit_s: Option<u64>) -> u32 {
    let (least, most) = UNSENT_BYTES;
    let bytes = pacing_bit_s.map_or(most, |bit_s| bit_s / 8 * UNSENT_NS / 1_000_000_000);
    bytes.clamp(least, most) as u32
}

/// The time in which a socket notices that its idle peer has vanished.
pub(crate) fn set_silence(socket: &impl AsFd, silence_ns: u64) -> io::Result<()> {
    SockRef::from(socket).set_tcp_keepalive(&keepalive(silence_ns))
}

/// [`set_silence`] of a multiplexed connection, whose data are always acknowledged in that time.
pub(crate) fn set_leg_silence(socket: &impl AsFd, silence_ns: u64) -> io::Result<()> {
    SockRef::from(socket).set_tcp_user_timeout(Some(Duration::from_nanos(silence_ns)))?;
    set_silence(socket, silence_ns)
}

/// Set up the socket of a multiplexed connection, which stays for long and is always read: what is sent is acknowledged, or
/// the other PEP has vanished.
pub(crate) fn set_up_multiplexed(config: &Config, socket: &Socket) -> io::Result<()> {
    set_leg_silence(socket, config.silence_ns)?;
    set_handshake_repeats(socket, SYNS_REPEATED)?;
    let pacing_bit_s = config.between.and_then(|between| between.pacing_bit_s);
    socket.set_tcp_notsent_lowat(multiplexed_unsent_bytes(pacing_bit_s))?;
    if let Some(bit_s) = pacing_bit_s {
        set_max_pacing_rate(socket, bit_s / 8)?;
    }
    Ok(())
}

fn open_raw(mark: u32) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::IPV4,
        Type::RAW.nonblocking(),
        Some(Protocol::from(RAW)),
    )?;
    socket.set_mark(mark)?;
    Ok(socket)
}

/// A TCP socket that may have any address, with all settings. Those of a listener are inherited by what it accepts.
fn open_transparent(mark: u32, settings: &SocketSettings, silence_ns: u64) -> io::Result<Socket> {
    let open_with_settings = || -> io::Result<Socket> {
        let socket = Socket::new(
            Domain::IPV4,
            Type::STREAM.nonblocking(),
            Some(Protocol::TCP),
        )?;
        socket.set_ip_transparent_v4(true)?;
        socket.set_reuse_address(true)?;
        socket.set_mark(mark)?;
        socket.set_linger(Some(Duration::ZERO))?;
        // Whether to wait for more was the peer's decision: its segments are passed on as they come.
        socket.set_tcp_nodelay(true)?;
        set_silence(&socket, silence_ns)?;
        if let Some(bit_s) = settings.pacing_bit_s {
            set_max_pacing_rate(&socket, bit_s / 8)?;
        }
        if let Some(bytes) = settings.notsent_lowat_bytes {
            socket.set_tcp_notsent_lowat(bytes)?;
        }
        if let Some(bytes) = settings.window_clamp_bytes {
            set_window_clamp(&socket, bytes)?;
        }
        if let Some(bytes) = settings.mss_bytes {
            socket.set_tcp_mss(bytes)?;
        }
        Ok(socket)
    };
    let socket = open_with_settings().map_err(failed("set up a socket"))?;
    if let Some(name) = &settings.congestion_control {
        sockopt::set_tcp_congestion(&socket, name).map_err(|error| {
            let file = "/proc/sys/net/ipv4/tcp_available_congestion_control";
            let available = std::fs::read_to_string(file);
            let available = available.as_deref().map_or("unknown", str::trim);
            let error = io::Error::from(error);
            atoll_job::bad_configuration(format!(
                "the kernel refuses congestion control '{name}': {error}; available here: {available}"
            ))
        })?;
    }
    Ok(socket)
}

/// Probes of an idle connection that find out within `silence_ns` that its peer has vanished, half of it being idle.
fn keepalive(silence_ns: u64) -> TcpKeepalive {
    const PROBES: u64 = 6;
    const MAX_IDLE_S: u64 = 32_767; // MAX_TCP_KEEPIDLE of net/tcp.h
    let seconds = silence_ns / 1_000_000_000;
    let idle_s = (seconds / 2).clamp(1, MAX_IDLE_S);
    let probing_s = (seconds - idle_s).max(1);
    let interval_s = (probing_s / PROBES).max(1);
    TcpKeepalive::new()
        .with_time(Duration::from_secs(idle_s))
        .with_interval(Duration::from_secs(interval_s))
        .with_retries((probing_s / interval_s) as u32)
}
