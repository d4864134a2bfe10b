// SPDX-License-Identifier: Apache-2.0
//! The interfaces of a program: checked, opened, read from and written to.

use crate::clock::RealTimeOffset;
use crate::kernel_pacing::FairQueue;
use crate::output::Outgoing;
use atoll_headers::{ETHERNET_BYTES, TAG_BYTES, ethernet_header};
use atoll_job::clock::monotonic_ns;
use atoll_netio::frame::Received;
use atoll_netio::interface::Interface;
use atoll_netio::packet_socket::{PacketSocket, SEND_BATCH};
use rustix::fd::{AsFd, BorrowedFd};
use std::io;

/// Frames taken from one port before the others are served; a few hundred microseconds of work.
const RECEIVE_BATCH: usize = 256;

/// What a port has received; of several ports the greatest applies to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Arrivals {
    None,
    /// And all taken.
    Some,
    /// A batch, and there may be more.
    More,
}

/// Longest frame that carries a packet of `mtu`, with an inner VLAN tag (the outer one is delivered separately).
fn longest_frame(mtu: u32) -> u32 {
    mtu + (ETHERNET_BYTES + TAG_BYTES) as u32
}

/// Whether a frame on its way out carries a packet of `mtu` at most.
fn carries(mtu: u32, frame: &[u8]) -> bool {
    let mtu_bytes = mtu as usize;
    // Most frames are short enough whatever their tags.
    frame.len() <= ETHERNET_BYTES + mtu_bytes || frame.len() - ethernet_header(frame).0 <= mtu_bytes
}

/// One interface.
#[derive(Debug)]
pub struct Port {
    socket: PacketSocket,
    mtu: u32,
    /// When it was last seen that nothing was waiting here.
    empty_ns: u64,
    /// When the last frame arrived of those that [`Port::receive`] has handed over.
    pub(crate) last_arrival_ns: u64,
    warned_of_checksums: bool,
    /// If the kernel times departures here.
    fair_queue: Option<FairQueue>,
}

impl Port {
    /// Open a packet socket on `name`, after seeing to it that packets arrive there as they
    /// were sent, of at most `mtu` bytes. Longer frames that arrive all the same may be cut: the program sees that
    /// ([`crate::Arrival::received`]) and discards them. Longer frames that it emits are refused
    /// ([`crate::FrameProgram::on_refused`]), also where the interface's own MTU permits them.
    ///
    /// # Errors
    /// `InvalidInput` for what the user can mend, with the command that does; what opening fails with.
    pub fn open(name: &str, mtu: u32) -> io::Result<Self> {
        let interface = Interface::find_usable(name, mtu).map_err(atoll_job::bad_configuration)?;
        let socket = PacketSocket::open(&interface, longest_frame(mtu)).map_err(|error| {
            let remedy = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    " (this needs CAP_NET_RAW: run as root or in your own user namespace)"
                }
                _ => "",
            };
            io::Error::other(format!("packet socket on '{name}': {error}{remedy}"))
        })?;
        Ok(Self {
            socket,
            mtu,
            empty_ns: monotonic_ns(),
            last_arrival_ns: 0,
            warned_of_checksums: false,
            fair_queue: None,
        })
    }

    /// From now on give frames to the kernel before they are due.
    ///
    /// # Errors
    /// When the kernel cannot time departures.
    pub(crate) fn leave_departures_to_kernel(&mut self) -> io::Result<()> {
        self.socket.allow_departure_times()?;
        self.fair_queue = Some(FairQueue::install(self.socket.interface())?);
        Ok(())
    }

    /// From now on send frames at once.
    pub(crate) fn send_at_once(&mut self) {
        self.fair_queue = None;
    }

    /// Hand frames that have arrived at `begin` or since to `take`, each with the instant of its arrival and whether that
    /// is the kernel's stamp.
    pub(crate) fn receive(
        &mut self,
        offset: &RealTimeOffset,
        begin: u64,
        mut take: impl FnMut(u64, bool, &Received<'_>),
    ) -> Arrivals {
        let empty_ns = self.empty_ns;
        let mut now = begin;
        let mut last_arrival_ns = self.last_arrival_ns;
        let mut without_checksum = false;
        let count = self.socket.receive(RECEIVE_BATCH, |received| {
            let arrival = |now| offset.arrival_ns(received.real_time_ns, empty_ns, now);
            let stamp_ns = arrival(now).or_else(|| {
                now = monotonic_ns(); // it may have arrived meanwhile
                arrival(now)
            });
            last_arrival_ns = stamp_ns.unwrap_or(last_arrival_ns);
            take(stamp_ns.unwrap_or(now), stamp_ns.is_some(), received);
            without_checksum |= received.checksum_missing;
        });
        self.last_arrival_ns = last_arrival_ns;
        if without_checksum && !self.warned_of_checksums {
            self.warned_of_checksums = true;
            eprintln!(
                "atoll-host: frames without checksum arrive on '{}' and will be discarded by their receivers: \
                 switch checksum offload off where they are sent (ethtool -K INTERFACE tx off)",
                self.socket.interface().name
            );
        }
        if count == RECEIVE_BATCH {
            return Arrivals::More;
        }
        self.empty_ns = begin;
        if count == 0 {
            Arrivals::None
        } else {
            Arrivals::Some
        }
    }

    /// Send up to [`SEND_BATCH`] frames in order, or give them to the kernel to do so. Returns how many were sent or
    /// given; the next one after those was refused and is lost.
    pub(crate) fn send<Tag>(&self, frames: &[Outgoing<Tag>]) -> usize {
        let fits = |outgoing: &&Outgoing<Tag>| carries(self.mtu, &outgoing.frame);
        let frames = frames.iter().take(SEND_BATCH).take_while(fits);
        let sent = if self.fair_queue.is_some() {
            let frames = frames.map(|outgoing| (outgoing.scheduled_ns, outgoing.frame.as_slice()));
            self.socket.send_at(frames)
        } else {
            let frames = frames.map(|outgoing| outgoing.frame.as_slice());
            self.socket.send(frames)
        };
        // The cause is a full queue or an interface that is down, both of which count as overload.
        sent.unwrap_or(0)
    }

    /// Frames that were lost since the last call because the ring was full.
    pub(crate) fn take_lost(&self) -> io::Result<u64> {
        self.socket.take_lost()
    }

    /// After polling said that the socket failed: whether the interface has been down.
    ///
    /// # Errors
    /// When the interface is gone for good.
    pub(crate) fn was_down(&self) -> io::Result<bool> {
        let failed = self.socket.take_error().is_some();
        let interface = self.socket.interface();
        if !interface.exists() {
            let name = &interface.name;
            return Err(io::Error::other(format!("interface '{name}' is gone")));
        }
        if failed {
            eprintln!(
                "atoll-host: interface '{}' went down: packets are lost",
                interface.name
            );
        }
        Ok(failed)
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_do_not_count_against_the_mtu() {
        let frame = |header: &[u8], packet: usize| [&[0; 12], header, &vec![7; packet]].concat();
        let single = [0x81, 0, 0, 5, 0x08, 0];
        let double = [0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 0x08, 0];
        for header in [&[0x08, 0][..], &single, &double] {
            assert!(carries(1400, &frame(header, 1400)), "{header:?}");
            assert!(!carries(1400, &frame(header, 1401)), "{header:?}");
        }
        // Bytes of the packet that look like a tag.
        assert!(!carries(
            4,
            &[&[0; 12][..], &[0x08, 0, 0x81, 0, 0, 5, 8, 0]].concat()
        ));
    }
}
