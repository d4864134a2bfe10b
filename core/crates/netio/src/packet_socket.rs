// SPDX-License-Identifier: Apache-2.0
//! Raw Ethernet on one interface: receiving every frame that arrives there, and sending.

use crate::frame::Received;
use crate::interface::Interface;
use crate::packet_options::{bind, take_error, unbound};
use crate::syscall::{read_option, set_option};
use crate::tpacket_v2::Ring;
use crate::transmit;
use rustix::net::sockopt::{
    set_socket_send_buffer_size, set_socket_send_buffer_size_force, set_txtime,
};
use rustix::net::{SocketType, TxTimeFlags};
use rustix::time::ClockId;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub use crate::transmit::SEND_BATCH;

/// Slots of the ring: at 1 Gbit/s of 1500-byte packets 98 ms, during which the engine may be off the processor.
const SLOTS: u32 = 8192;

/// Room for frames passed to the kernel and not yet with the driver.
const SEND_BUFFER_BYTES: usize = 4 << 20;

/// A promiscuous packet socket on one interface that does not receive this machine's own frames.
///
/// Sending passes the interface's queueing discipline. `PACKET_QDISC_BYPASS` would save a microsecond, but
/// then captures on the interface miss the frames sent, and runs capture the emulator's port.
#[derive(Debug)]
pub struct PacketSocket {
    ring: Ring,
    socket: OwnedFd,
    interface: Interface,
}

impl PacketSocket {
    /// Receive and send on `interface`; frames of up to `frame_bytes` (headers included) are received whole.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `ENOMEM` when there is no memory for the ring (16 MiB at 1500 bytes).
    pub fn open(interface: &Interface, frame_bytes: u32) -> io::Result<Self> {
        let socket = unbound(SocketType::RAW)?;
        let ring = Ring::map(&socket, frame_bytes, SLOTS)?;
        // Linux before 4.20 does not know it; the ring skips outgoing frames in any case.
        let _ = set_option(
            &socket,
            libc::SOL_PACKET,
            libc::PACKET_IGNORE_OUTGOING,
            &1_i32,
        );
        // As much as is allowed: privileged processes may exceed `net.core.wmem_max`. A refusal leaves the default,
        // which is enough but for bursts.
        let _ = set_socket_send_buffer_size(&socket, SEND_BUFFER_BYTES);
        let _ = set_socket_send_buffer_size_force(&socket, SEND_BUFFER_BYTES);
        bind(&socket, interface.index)?;
        Ok(Self {
            ring,
            socket,
            interface: interface.clone(),
        })
    }

    /// The interface this socket is bound to.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Hand up to `limit` frames that have arrived to `take`, in order; returns how many there were,
    /// `limit` if there may be more. The socket polls readable while there are any.
    pub fn receive(&mut self, limit: usize, mut take: impl FnMut(&Received<'_>)) -> usize {
        (0..limit)
            .take_while(|_| self.ring.receive(&mut take))
            .count()
    }

    /// Enable departure times of frames: [`PacketSocket::send_at`].
    ///
    /// # Errors
    /// Linux before 4.19 does not know it.
    pub fn allow_departure_times(&self) -> io::Result<()> {
        Ok(set_txtime(
            &self.socket,
            ClockId::Monotonic,
            TxTimeFlags::empty(),
        )?)
    }

    /// Send frames, at most [`SEND_BATCH`] of them, in order; returns how many were sent.
    ///
    /// # Errors
    /// Why the first frame could not be sent; then none was.
    pub fn send<'a>(&self, frames: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        transmit::send(&self.socket, frames)
    }

    /// Pass frames to the kernel, at most [`SEND_BATCH`] of them, each with its departure time (`CLOCK_MONOTONIC`, ns);
    /// returns how many it took.
    ///
    /// It takes a queueing discipline that keeps the instants (`fq`), and
    /// [`PacketSocket::allow_departure_times`] before: without either, frames leave at once.
    ///
    /// # Errors
    /// Why the first frame was not taken; then none was. `ENOBUFS` and `EAGAIN`: there is no more room for waiting ones.
    pub fn send_at<'a>(&self, frames: impl Iterator<Item = (u64, &'a [u8])>) -> io::Result<usize> {
        transmit::send_at(&self.socket, frames)
    }

    /// Frames that found the ring full since the last call, and are lost.
    ///
    /// # Errors
    /// None are expected.
    pub fn take_lost(&self) -> io::Result<u64> {
        let counts = [0_u32; 2]; // `tpacket_stats`
        let [_, lost] = read_option(
            &self.socket,
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            counts,
        )?;
        Ok(u64::from(lost))
    }

    /// The error that makes the socket poll as failed, and clear it: `ENETDOWN` when the interface went
    /// down or away.
    #[must_use]
    pub fn take_error(&self) -> Option<io::Error> {
        take_error(&self.socket)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
