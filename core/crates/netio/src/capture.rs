// SPDX-License-Identifier: Apache-2.0
//! Listening on one interface: every frame that passes there, cut to its headers by the kernel.

use crate::frame::Received;
use crate::interface::Interface;
use crate::packet_options::{bind, take_error, unbound};
use crate::syscall::{read_option, set_option};
use crate::tpacket_v3::{BLOCK_BYTES, BlockRing};
use rustix::net::SocketType;
use serde::Deserialize;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Which frames of an interface are captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CaptureDirection {
    /// Frames that arrive and frames that this machine sends.
    Both,
    /// Frames that arrive, for any destination.
    In,
    /// Frames that this machine sends.
    Out,
}

/// A packet socket that only receives, into a ring of blocks; promiscuous.
#[derive(Debug)]
pub struct CaptureSocket {
    ring: BlockRing,
    socket: OwnedFd,
}

impl CaptureSocket {
    /// Receive the first `snap_bytes` (VLAN tag not counted) of each frame, at most 65535, into a ring of
    /// `buffer_bytes`. When this returns, the kernel is capturing.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `ENOMEM` when there is no memory for the ring.
    pub fn open(
        interface: &Interface,
        snap_bytes: u16,
        buffer_bytes: u32,
        direction: CaptureDirection,
    ) -> io::Result<Self> {
        let socket = unbound(SocketType::RAW)?;
        let ring = BlockRing::map(&socket, buffer_bytes)?;
        attach(&socket, &mut program(u32::from(snap_bytes), direction))?;
        bind(&socket, interface.index)?;
        Ok(Self { ring, socket })
    }

    /// Hand the frames of the next full block to `take`, in order; false if there is none. The socket polls
    /// readable while there is one. A block that is not full becomes one within 0.4 s.
    pub fn receive(&mut self, take: impl FnMut(&Received<'_>)) -> bool {
        self.ring.receive(take)
    }

    /// How many blocks the ring has.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.ring.blocks()
    }

    /// Size of the ring in bytes: at most that of [`CaptureSocket::open`], as it has whole blocks.
    #[must_use]
    pub fn ring_bytes(&self) -> u32 {
        self.ring.blocks() * BLOCK_BYTES
    }

    /// Take no more frames; those in the ring can still be received.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn refuse_new(&self) -> io::Result<()> {
        attach(&self.socket, &mut [statement(libc::BPF_RET, 0, 0, 0)])
    }

    /// Since the last call: frames that were put into the ring, and frames that found it full and are lost.
    ///
    /// # Errors
    /// None are expected.
    pub fn take_counts(&self) -> io::Result<(u64, u64)> {
        // `tpacket_stats_v3`: the sum of both, those that are lost, and a third counter.
        let counts = [0_u32; 3];
        let [all, lost, _] = read_option(
            &self.socket,
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            counts,
        )?;
        Ok((u64::from(all.saturating_sub(lost)), u64::from(lost)))
    }

    /// The error that makes the socket poll as failed, and clear it: `ENETDOWN` when the interface went
    /// down or away.
    #[must_use]
    pub fn take_error(&self) -> Option<io::Error> {
        take_error(&self.socket)
    }
}

impl AsFd for CaptureSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The packet filter (Linux's `Documentation/networking/filter.rst`) that keeps `snap_bytes` of the frames of
/// `direction` and nothing of others.
fn program(snap_bytes: u32, direction: CaptureDirection) -> Vec<libc::sock_filter> {
    let packet_type = u32::from_ne_bytes((libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE).to_ne_bytes());
    let load = statement(
        libc::BPF_LD | libc::BPF_B | libc::BPF_ABS,
        packet_type,
        0,
        0,
    );
    let is_outgoing = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    // Of others the next statement is skipped.
    let outgoing = statement(is_outgoing, u32::from(libc::PACKET_OUTGOING), 0, 1);
    let [keep, discard] = [snap_bytes, 0].map(|bytes| statement(libc::BPF_RET, bytes, 0, 0));
    match direction {
        CaptureDirection::Both => vec![keep],
        CaptureDirection::Out => vec![load, outgoing, keep, discard],
        CaptureDirection::In => vec![load, outgoing, discard, keep],
    }
}

/// A statement of a packet filter: so many others are skipped if its test is true, or false.
pub(crate) fn statement(code: u32, operand: u32, yes: u8, no: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k: operand,
    }
}

/// Replace the socket's filter.
pub(crate) fn attach(socket: &OwnedFd, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let filter = libc::sock_fprog {
        len: program.len() as libc::c_ushort,
        filter: program.as_mut_ptr(),
    };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter) // the kernel copies the program
}
