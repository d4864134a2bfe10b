// SPDX-License-Identifier: Apache-2.0
//! Frames on their way out, and the memory they are in.

use atoll_headers::{TAG_BYTES, append_tagged};
use atoll_netio::frame::Received;
use atoll_netio::packet::SEND_BATCH;

/// Frames up to this size have memory of their own: a queue full of acknowledgements does not occupy that of large ones.
const SMALL_BYTES: usize = 256;
/// Buffers of either size that are kept for the next frames.
const SPARE_MAX: usize = 1024;

/// A frame on its way out.
#[derive(Debug)]
pub struct Outgoing<Tag> {
    /// Where to send it, in the order in which the engine was given its ports.
    pub port: usize,
    /// When it is to leave. Only the kernel waits for it, where it sees to departures: the engine itself sends at once.
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
    small: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
}

impl<Tag> Default for FrameOutput<Tag> {
    fn default() -> Self {
        Self {
            frames: Vec::with_capacity(SEND_BATCH),
            small: Vec::new(),
            large: Vec::new(),
        }
    }
}

impl<Tag> FrameOutput<Tag> {
    /// An empty buffer with room for `bytes`.
    pub fn buffer(&mut self, bytes: usize) -> Vec<u8> {
        let spare = if bytes <= SMALL_BYTES {
            &mut self.small
        } else {
            &mut self.large
        };
        let mut buffer = spare.pop().unwrap_or_default();
        buffer.reserve_exact(bytes.max(SMALL_BYTES));
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
        let spare = if buffer.capacity() <= SMALL_BYTES {
            &mut self.small
        } else {
            &mut self.large
        };
        if spare.len() < SPARE_MAX {
            buffer.clear();
            spare.push(buffer);
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
    fn memory_is_used_again_for_frames_of_its_size() {
        let mut out = FrameOutput::<()>::default();
        let mut large = out.buffer(1518);
        large.extend([1; 1518]);
        let (address, small) = (large.as_ptr(), out.buffer(60));
        let small_address = small.as_ptr();
        out.recycle(large);
        out.recycle(small);
        let again = out.buffer(1400);
        assert!(again.is_empty());
        assert_eq!(again.as_ptr(), address);
        let (small_again, another) = (out.buffer(54), out.buffer(1518));
        assert_eq!(small_again.as_ptr(), small_address);
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
