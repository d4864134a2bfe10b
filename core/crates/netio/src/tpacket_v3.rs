// SPDX-License-Identifier: Apache-2.0
//! Memory shared with the kernel into which a packet socket receives, a block at a time (`TPACKET_V3`).
//!
//! Source: `Documentation/networking/packet_mmap.rst` and `net/packet/af_packet.c` of Linux. Frames lie
//! behind each other in a block and take no more room than they need, so that the same memory holds several
//! times the frames of version 2's fixed slots. The kernel hands a block over when it is full, or at the
//! second expiry of a timer that runs all the while.

use crate::frame::{Received, tag_from_ring_status};
use crate::packet_options::SharedMemory;
use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// Holds the longest frame there is, and is small enough to be found in fragmented memory.
pub(crate) const BLOCK_BYTES: u32 = 131_072;
/// Only checked by the kernel, not used: in version 3 frames take what they need.
const FRAME_BYTES: u32 = 2048;
/// Period of the timer that closes blocks which are not full; a frame waits for two of them at most. Each block is a
/// wake-up of the capturing program, the main cost of a capture on a link with little traffic.
const BLOCK_TIMEOUT_MS: u32 = 200;
/// The block header, which describes its frames.
const HEADER_OFFSET: usize = offset_of!(libc::tpacket_block_desc, hdr);
/// Where kernel and we pass the block to each other.
const STATUS_OFFSET: usize = HEADER_OFFSET + offset_of!(libc::tpacket_hdr_v1, block_status);

/// The receive ring of one socket.
#[derive(Debug)]
pub(crate) struct BlockRing {
    memory: SharedMemory,
    blocks: u32,
    next: u32,
}

impl BlockRing {
    /// Give `socket` (not yet bound) a ring of at most `bytes`, but two blocks at least.
    pub(crate) fn map(socket: &OwnedFd, bytes: u32) -> io::Result<Self> {
        let blocks = (bytes / BLOCK_BYTES).max(2);
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_BYTES,
            tp_block_nr: blocks,
            tp_frame_size: FRAME_BYTES,
            tp_frame_nr: blocks * (BLOCK_BYTES / FRAME_BYTES),
            tp_retire_blk_tov: BLOCK_TIMEOUT_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        let version = libc::tpacket_versions::TPACKET_V3;
        let bytes = blocks as usize * BLOCK_BYTES as usize;
        Ok(Self {
            memory: SharedMemory::ring(socket, version, &request, bytes)?,
            blocks,
            next: 0,
        })
    }

    /// How many blocks there are.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Hand the frames of the next block to `take`, in order, and the block back to the kernel. False: it is
    /// still the kernel's.
    pub(crate) fn receive(&mut self, mut take: impl FnMut(&Received<'_>)) -> bool {
        // SAFETY: `next` is below `blocks`, so the block lies inside the mapping.
        let block = unsafe {
            self.memory
                .base
                .add(self.next as usize * BLOCK_BYTES as usize)
        };
        // SAFETY: the status lies in the block, aligned as the kernel's structure is, and is accessed
        // atomically by both sides.
        let status = unsafe { AtomicU32::from_ptr(block.add(STATUS_OFFSET).as_ptr().cast()) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return false;
        }
        // SAFETY: with TP_STATUS_USER set the block is ours until we give it back, and begins with the
        // header that the kernel has completed.
        let header: libc::tpacket_hdr_v1 = unsafe { block.add(HEADER_OFFSET).cast().read() };
        let mut offset = header.offset_to_first_pkt as usize;
        for _ in 0..header.num_pkts {
            // SAFETY: the kernel has put `num_pkts` frames into the block, the first at
            // `offset_to_first_pkt`, each next one `tp_next_offset` behind the one before; each has a header
            // and `tp_snaplen` bytes at `tp_mac`. The header is copied, and the slice does not outlive this turn.
            let (header, frame) = unsafe {
                let packet = block.add(offset);
                let header: libc::tpacket3_hdr = packet.cast().read();
                let start = packet.add(usize::from(header.tp_mac)).as_ptr();
                let frame = std::slice::from_raw_parts(start, header.tp_snaplen as usize);
                (header, frame)
            };
            take(&Received {
                real_time_ns: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
                wire_bytes: header.tp_len,
                frame,
                vlan: tag_from_ring_status(
                    header.tp_status,
                    header.hv1.tp_vlan_tci as u16,
                    header.hv1.tp_vlan_tpid,
                ),
                checksum_missing: header.tp_status & libc::TP_STATUS_CSUMNOTREADY != 0,
            });
            offset += header.tp_next_offset as usize;
        }
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.blocks;
        true
    }
}
