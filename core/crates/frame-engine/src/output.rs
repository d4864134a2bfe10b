// SPDX-License-Identifier: Apache-2.0
//! Frames on their way out, and the memory they are in.

use atoll_headers::{TAG_BYTES, append_tagged};
use atoll_netio::frame::Received;
use atoll_netio::packet_socket::SEND_BATCH;

/// Smaller buffers are the allocator's, exactly as large as their frames: it keeps spare ones itself, and a long queue of
/// acknowledgements takes neither the memory of large frames nor their room in caches.
const SMALL_BYTES: usize = 256;
/// Larger buffers that are kept for the next frames.
const SPARE_MAX: usize = 1024;

/// A frame on its way out.
#[derive(Debug)]
pub struct Outgoing<Tag> {
    /// Where to send it, in the order in which the engine was given its ports.
    pub port: usize,
    /// When it is to leave. Only the kernel waits for it, where it times departures: the engine itself sends at once.
    pub scheduled_ns: u64,
    /// From the destination address on, as on the wire.
    pub frame: Vec<u8>,
    /// The program's.
    pub tag: Tag,
}

/// Takes the frames that a program emits, and provides them with memory that is used again.
#[derive(Debug)]
pub struct FrameOutput<Tag> {
    pub(crate) frames: Vec<Outgoing<Tag>>,
    spare: Vec<Vec<u8>>,
}

impl<Tag> Default for FrameOutput<Tag> {
    fn default() -> Self {
        Self {
            frames: Vec::with_capacity(SEND_BATCH),
            spare: Vec::new(),
        }
    }
}

impl<Tag> FrameOutput<Tag> {
    /// An empty buffer with room for `bytes`.
    pub fn buffer(&mut self, bytes: usize) -> Vec<u8> {
        if bytes <= SMALL_BYTES {
            return Vec::with_capacity(bytes);
        }
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.reserve_exact(bytes);
        buffer
    }

    /// A copy of `received` as it was on the wire, its VLAN tag back between addresses and type.
    pub fn copy(&mut self, received: &Received<'_>) -> Vec<u8> {
        let mut frame = self.buffer(received.frame.len() + TAG_BYTES);
        append_tagged(&mut frame, received.frame, received.vlan);
        frame
    }

    /// Emit a frame.
    pub fn send(&mut self, frame: Outgoing<Tag>) {
        self.frames.push(frame);
    }

    /// Whether so many frames wait to be sent that no more are to be emitted in [`crate::FrameProgram::on_wake`].
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.frames.len() >= SEND_BATCH
    }

    /// Give back a buffer that is no longer needed.
    pub fn recycle(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() > SMALL_BYTES && self.spare.len() < SPARE_MAX {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// All frames were sent or refused: their memory is free.
    pub(crate) fn recycle_sent(&mut self) {
        let mut sent = std::mem::take(&mut self.frames);
        for outgoing in sent.drain(..) {
            self.recycle(outgoing.frame);
        }
        self.frames = sent;
    }

    /// Take the frames that were emitted, in order: for tests of programs. The engine does this by sending them.
    pub fn take(&mut self) -> Vec<Outgoing<Tag>> {
        std::mem::take(&mut self.frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_large_frames_is_used_again_and_small_ones_take_no_more_than_they_need() {
        let mut out = FrameOutput::<()>::default();
        let mut large = out.buffer(1518);
        large.extend([1; 1518]);
        let address = large.as_ptr();
        out.recycle(large);
        let small = out.buffer(60);
        assert!((60..SMALL_BYTES).contains(&small.capacity()));
        out.recycle(small);
        let (again, another) = (out.buffer(1400), out.buffer(1518));
        assert!(again.is_empty());
        assert_eq!(again.as_ptr(), address);
        assert_ne!(another.as_ptr(), address, "in use");
    }

    #[test]
    fn a_copy_has_its_vlan_tag_where_it_was_on_the_wire() {
        let vlan = atoll_headers::VlanTag {
            control: 101,
            protocol: 0x8100,
        };
        let received = Received {
            real_time_ns: 0,
            wire_bytes: 14,
            frame: &[7; 14],
            vlan: Some(vlan),
            checksum_missing: false,
        };
        let copy = FrameOutput::<()>::default().copy(&received);
        assert_eq!(copy[12..], [0x81, 0, 0, 101, 7, 7]);
    }

    #[test]
    fn a_full_output_is_a_batch_of_the_kernels() {
        let mut out = FrameOutput::default();
        for tag in 0..SEND_BATCH {
            assert!(!out.is_full());
            out.send(Outgoing {
                port: 0,
                scheduled_ns: 0,
                frame: Vec::new(),
                tag,
            });
        }
        assert!(out.is_full());
        assert_eq!(out.take().len(), SEND_BATCH);
        assert!(!out.is_full());
    }
}
