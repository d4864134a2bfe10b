// SPDX-License-Identifier: Apache-2.0
//! Seeing the first segments of TCP connections that arrive at an interface: the kernel filters all others out.

use crate::capture::{attach, statement};
use crate::frame::Received;
use crate::interface::Interface;
use crate::packet_options::{bind_protocol, take_error, unbound};
use crate::tpacket_v2::Ring;
use rustix::net::SocketType;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Slots of the ring: a burst of as many segments is received whole, however long it is not looked at. The receive buffer of a
/// socket without a ring holds 257 of them (`net.core.rmem_default`), and only the machine's administrator may exceed twice
/// that (`net.core.rmem_max`).
const SLOTS: u32 = 2048;

/// A packet socket that receives IPv4 packets with a TCP segment that has SYN and not ACK, without link header.
#[derive(Debug)]
pub struct SynSocket {
    ring: Ring,
    socket: OwnedFd,
}

impl SynSocket {
    /// Receive what arrives at `interface`, packets of up to `packet_bytes` whole; not what this machine sends there.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `ENODEV` when the interface is gone; `ENOMEM` when there is no memory for the ring
    /// (4 MiB at 1500 bytes).
    pub fn open(interface: &Interface, packet_bytes: u32) -> io::Result<Self> {
        let socket = unbound(SocketType::DGRAM)?;
        attach(&socket, &mut program())?;
        let ring = Ring::map(&socket, packet_bytes, SLOTS)?;
        bind_protocol(&socket, interface.index, libc::ETH_P_IP as u16)?;
        Ok(Self { ring, socket })
    }

    /// Hand up to `limit` packets that have arrived to `take`, in order; longer ones than those of [`SynSocket::open`] are
    /// cut. The socket polls readable while there are any.
    ///
    /// # Errors
    /// `ENETDOWN` when the interface went down or away.
    pub fn receive(&mut self, limit: usize, mut take: impl FnMut(&Received<'_>)) -> io::Result<()> {
        let count = (0..limit)
            .take_while(|_| self.ring.receive(&mut take))
            .count();
        match count {
            0 => take_error(&self.socket).map_or(Ok(()), Err),
            _ => Ok(()),
        }
    }
}

impl AsFd for SynSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The packet filter: of IPv4 packets that arrive, unfragmented, those with a TCP segment that has SYN and not ACK.
/// Offsets are from the IPv4 header, as the socket delivers no link header.
fn program() -> Vec<libc::sock_filter> {
    const REJECT: u8 = 10; // the last statement
    let packet_type = u32::from_ne_bytes((libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE).to_ne_bytes());
    let load = |size: u32, mode: u32, at: u32| statement(libc::BPF_LD | size | mode, at, 0, 0);
    let jump = |test: u32, operand: u32, yes: u8, no: u8| {
        statement(libc::BPF_JMP | test | libc::BPF_K, operand, yes, no)
    };
    let to_reject = |at: u8| REJECT - at - 1;
    vec![
        load(libc::BPF_B, libc::BPF_ABS, packet_type),
        jump(
            libc::BPF_JEQ,
            u32::from(libc::PACKET_OUTGOING),
            to_reject(1),
            0,
        ),
        load(libc::BPF_B, libc::BPF_ABS, 9), // protocol
        jump(libc::BPF_JEQ, libc::IPPROTO_TCP as u32, 0, to_reject(3)),
        load(libc::BPF_H, libc::BPF_ABS, 6), // more fragments, offset
        jump(libc::BPF_JSET, 0x3fff, to_reject(5), 0),
        statement(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0, 0, 0), // length of the header
        load(libc::BPF_B, libc::BPF_IND, 13),                            // flags
        statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0x12, 0, 0),
        jump(libc::BPF_JEQ, 0x02, 1, 0),
        statement(libc::BPF_RET, 0, 0, 0),
        statement(libc::BPF_RET, 0xffff, 0, 0),
    ]
}
