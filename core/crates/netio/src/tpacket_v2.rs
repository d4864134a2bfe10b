// SPDX-License-Identifier: Apache-2.0
//! Memory shared with the kernel into which a packet socket receives (`TPACKET_V2`).
//!
//! Source: `Documentation/networking/packet_mmap.rst` and `net/packet/af_packet.c` of Linux.
//! Version 2 and not 3: version 3 hands packets over in blocks, which are closed by a timer of a
//! millisecond or more when traffic is sparse; version 2 hands over each packet at once.

use crate::frame::{Received, tag_from_ring_status};
use crate::packet_options::SharedMemory;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// The space before the packet: the kernel's header, address, alignment; an upper bound.
const HEADROOM_BYTES: u32 = 128;
/// Large enough to be a multiple of every page and slot size here, small enough to be found in
/// fragmented memory.
const BLOCK_BYTES: u32 = 65_536;
/// Where `sockaddr_ll` follows `tpacket2_hdr`.
const ADDRESS_OFFSET: usize =
    size_of::<libc::tpacket2_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);

/// The receive ring of one socket.
#[derive(Debug)]
pub(crate) struct Ring {
    memory: SharedMemory,
    slot_bytes: usize,
    slots: usize,
    next: usize,
}

impl Ring {
    /// Give `socket` (not yet bound) a ring whose slots hold whole frames of `frame_bytes`. `slots`: a power of two, at
    /// least 64.
    pub(crate) fn map(socket: &OwnedFd, frame_bytes: u32, slots: u32) -> io::Result<Self> {
        let slot_bytes = (frame_bytes + HEADROOM_BYTES).next_power_of_two();
        if slot_bytes > BLOCK_BYTES {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES,
            tp_block_nr: slots / (BLOCK_BYTES / slot_bytes),
            tp_frame_size: slot_bytes,
            tp_frame_nr: slots,
        };
        let (slot_bytes, slots) = (slot_bytes as usize, slots as usize);
        let version = libc::tpacket_versions::TPACKET_V2;
        Ok(Self {
            memory: SharedMemory::ring(socket, version, &request, slots * slot_bytes)?,
            slot_bytes,
            slots,
            next: 0,
        })
    }

    /// Hand the packet in the next slot to `take` and the slot back to the kernel. False: none there.
    pub(crate) fn receive(&mut self, take: impl FnOnce(&Received<'_>)) -> bool {
        // SAFETY: `next` is below `slots`, so the slot lies inside the mapping; slots are aligned to
        // their size, a power of two.
        let slot = unsafe { self.memory.base.add(self.next * self.slot_bytes) };
        // SAFETY: the first member of a slot is `tp_status`, which kernel and we use to pass the slot
        // to each other and which is accessed atomically by both.
        let status = unsafe { AtomicU32::from_ptr(slot.as_ptr().cast()) };
        let flags = status.load(Ordering::Acquire);
        if flags & libc::TP_STATUS_USER == 0 {
            return false;
        }
        // SAFETY: with TP_STATUS_USER set the slot is ours until we give it back, and the kernel has
        // written a header, an address and `tp_snaplen` bytes at `tp_mac`, all inside the slot.
        // The header is copied, and the slice does not outlive this call.
        let (header, packet_type, frame) = unsafe {
            let header: libc::tpacket2_hdr = slot.cast().read();
            let address: libc::sockaddr_ll = slot.add(ADDRESS_OFFSET).cast().read();
            let start = slot.add(usize::from(header.tp_mac)).as_ptr();
            let frame = std::slice::from_raw_parts(start, header.tp_snaplen as usize);
            (header, address.sll_pkttype, frame)
        };
        if packet_type != libc::PACKET_OUTGOING {
            take(&Received {
                real_time_ns: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
                wire_bytes: header.tp_len,
                frame,
                vlan: tag_from_ring_status(flags, header.tp_vlan_tci, header.tp_vlan_tpid),
                checksum_missing: flags & libc::TP_STATUS_CSUMNOTREADY != 0,
            });
        }
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.slots;
        true
    }
}
