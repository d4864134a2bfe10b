// SPDX-License-Identifier: Apache-2.0
//! A raw ICMP socket with kernel time stamps (`SO_TIMESTAMPING`, Documentation/networking/timestamping.rst).
//!
//! Received packets are stamped when the device hands them to the stack. Sent packets are stamped when the stack
//! hands them to the device, and come back on the socket's error queue with that stamp. A device without
//! software transmit stamps sends none back; the clock just before the send call is used instead.

use super::echo::{self, ECHO_HEADER_BYTES, Echo, IP_HEADER_BYTES, Kind};
use crate::job::{failed, realtime_ns};
use crate::socket::{is_not_ready, not_permitted};
use nix::sys::socket::sockopt::Timestamping;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, TimestampingFlag, recvmsg, setsockopt};
use nix::sys::time::TimeValLike;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Largest IPv4 packet and a link-layer header.
const PACKET_BYTES: usize = 65_535 + 64;

/// A raw ICMP socket.
pub struct PingSocket {
    socket: Socket,
    packet: Vec<u8>,
    control: Vec<u8>,
}

impl PingSocket {
    /// # Errors
    /// Without the right to open raw sockets.
    pub fn open() -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))
            .map_err(not_permitted("open a raw ICMP socket"))?;
        socket.set_nonblocking(true)?;
        let stamps = TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE;
        setsockopt(&socket, Timestamping, &stamps).map_err(failed("ask for kernel time stamps"))?;
        Ok(Self {
            socket,
            packet: vec![0; PACKET_BYTES],
            control: vec![0; 512],
        })
    }

    /// Send `message` to `address`; the real time just before.
    ///
    /// # Errors
    /// If there is no route, or the device's queue is full.
    pub fn send(&self, address: Ipv4Addr, message: &[u8]) -> io::Result<i64> {
        let now_ns = realtime_ns();
        self.socket
            .send_to(message, &SocketAddrV4::new(address, 0).into())?;
        Ok(now_ns)
    }

    /// The next received echo reply, with the time it came and whether that is the kernel's stamp; None when there are
    /// no more for now.
    ///
    /// # Errors
    /// None are expected.
    pub fn receive(&mut self) -> io::Result<Option<(Echo<'_>, i64, bool)>> {
        loop {
            let Some((bytes, stamp_ns)) = self.read(MsgFlags::empty())? else {
                return Ok(None);
            };
            let is_reply =
                echo::parse(&self.packet[..bytes]).is_some_and(|echo| echo.kind == Kind::Reply);
            if is_reply {
                let received_ns = stamp_ns.unwrap_or_else(realtime_ns);
                return Ok(echo::parse(&self.packet[..bytes])
                    .map(|echo| (echo, received_ns, stamp_ns.is_some())));
            }
        }
    }

    /// The next sent echo request with `payload_bytes` of payload that the kernel has stamped, with the time it
    /// left; None when there are no more for now.
    ///
    /// # Errors
    /// None are expected.
    pub fn transmitted(&mut self, payload_bytes: usize) -> io::Result<Option<(Echo<'_>, i64)>> {
        let expected = IP_HEADER_BYTES + ECHO_HEADER_BYTES + payload_bytes;
        loop {
            let Some((bytes, stamp_ns)) = self.read(MsgFlags::MSG_ERRQUEUE)? else {
                return Ok(None);
            };
            // The packet comes back with a link-layer header, whose length depends on the device.
            let Some(start) = bytes.checked_sub(expected) else {
                continue;
            };
            if let Some(sent_ns) = stamp_ns {
                if echo::parse(&self.packet[start..bytes]).is_some() {
                    return Ok(echo::parse(&self.packet[start..bytes]).map(|echo| (echo, sent_ns)));
                }
            }
        }
    }

    /// One message into the buffer: its length and kernel stamp.
    fn read(&mut self, flags: MsgFlags) -> io::Result<Option<(usize, Option<i64>)>> {
        let mut slices = [IoSliceMut::new(&mut self.packet)];
        let received = recvmsg::<()>(
            self.socket.as_raw_fd(),
            &mut slices,
            Some(&mut self.control),
            flags,
        );
        match received.map_err(io::Error::from) {
            Ok(message) => {
                let stamp_ns = message.cmsgs()?.find_map(|control| match control {
                    ControlMessageOwned::ScmTimestampsns(stamps) => {
                        Some(stamps.system.num_nanoseconds())
                    }
                    _ => None,
                });
                Ok(Some((
                    message.bytes,
                    stamp_ns.filter(|&stamp_ns| stamp_ns > 0),
                )))
            }
            Err(error) if is_not_ready(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for PingSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
