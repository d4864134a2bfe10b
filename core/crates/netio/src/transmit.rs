// SPDX-License-Identifier: Apache-2.0
//! Sending many frames by one system call (sendmmsg(2)), at once or each at an instant of its own (`SO_TXTIME`).
//!
//! A ring shared with the kernel would spare the copy, but gives all its frames the same instant
//! (`tpacket_snd` in `net/packet/af_packet.c` of Linux).

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};

/// Most frames that one call passes to the kernel.
pub const SEND_BATCH: usize = 64;

const NOTHING: libc::iovec = libc::iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

/// A control message of type `SCM_TXTIME` as cmsg(3) lays it out: the data right behind the header.
#[derive(Clone, Copy)]
#[repr(C)]
struct DepartureTime {
    header: libc::cmsghdr,
    departure_ns: [u8; size_of::<u64>()],
}

const DATA_OFFSET: usize = offset_of!(DepartureTime, departure_ns);

impl DepartureTime {
    fn at(departure_ns: u64) -> Self {
        // SAFETY: `cmsghdr` is plain old data, for which all zeros is a value.
        let mut header: libc::cmsghdr = unsafe { std::mem::zeroed() };
        header.cmsg_len = (DATA_OFFSET + size_of::<u64>()) as _;
        header.cmsg_level = libc::SOL_SOCKET;
        header.cmsg_type = libc::SCM_TXTIME;
        Self {
            header,
            departure_ns: departure_ns.to_ne_bytes(),
        }
    }
}

/// See [`crate::packet_socket::PacketSocket::send`].
pub(crate) fn send<'a>(
    socket: &OwnedFd,
    frames: impl Iterator<Item = &'a [u8]>,
) -> io::Result<usize> {
    let mut slices = [NOTHING; SEND_BATCH];
    let count = fill(&mut slices, frames);
    transmit(socket, &mut slices[..count], &mut [])
}

/// See [`crate::packet_socket::PacketSocket::send_at`].
pub(crate) fn send_at<'a>(
    socket: &OwnedFd,
    frames: impl Iterator<Item = (u64, &'a [u8])>,
) -> io::Result<usize> {
    let mut slices = [NOTHING; SEND_BATCH];
    let mut time_messages = [DepartureTime::at(0); SEND_BATCH];
    let mut free_messages = time_messages.iter_mut();
    let frames = frames.map_while(|(departure_ns, frame)| {
        *free_messages.next()? = DepartureTime::at(departure_ns);
        Some(frame)
    });
    let count = fill(&mut slices, frames);
    transmit(socket, &mut slices[..count], &mut time_messages[..count])
}

fn fill<'a>(slices: &mut [libc::iovec], frames: impl Iterator<Item = &'a [u8]>) -> usize {
    let mut count = 0;
    for (slice, frame) in slices.iter_mut().zip(frames) {
        slice.iov_base = frame.as_ptr().cast_mut().cast();
        slice.iov_len = frame.len();
        count += 1;
    }
    count
}

/// Send the frames at `slices`, which point to memory that lives, at the times of `time_messages` if there are any.
fn transmit(
    socket: &OwnedFd,
    slices: &mut [libc::iovec],
    time_messages: &mut [DepartureTime],
) -> io::Result<usize> {
    // SAFETY: `mmsghdr` is plain old data, for which all zeros is a value.
    let mut messages: [libc::mmsghdr; SEND_BATCH] = unsafe { std::mem::zeroed() };
    for (message, slice) in messages.iter_mut().zip(slices.iter_mut()) {
        message.msg_hdr.msg_iov = slice;
        message.msg_hdr.msg_iovlen = 1;
    }
    for (message, time) in messages.iter_mut().zip(time_messages) {
        message.msg_hdr.msg_control = std::ptr::from_mut(time).cast();
        message.msg_hdr.msg_controllen = size_of::<DepartureTime>() as _;
    }
    // SAFETY: the first messages, as many as there are slices, point to slices, control messages and frames that
    // live during the call; the kernel only reads the frames.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            messages.as_mut_ptr(),
            slices.len() as libc::c_uint,
            libc::MSG_DONTWAIT as _,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::TxTimeFlags;
    use rustix::net::sockopt::set_txtime;
    use rustix::time::ClockId;

    #[test]
    fn control_messages_are_laid_out_as_the_kernel_reads_them() {
        // SAFETY: computes with its argument.
        let (length, space) = unsafe { (libc::CMSG_LEN(8), libc::CMSG_SPACE(8)) };
        assert_eq!(DepartureTime::at(0).header.cmsg_len, length as _);
        assert_eq!(size_of::<DepartureTime>(), space as usize);
    }

    #[test]
    fn a_batch_is_sent_whole_and_in_order() {
        let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let sender = OwnedFd::from(sender);
        set_txtime(&sender, ClockId::Monotonic, TxTimeFlags::empty()).unwrap();
        let frames: Vec<[u8; 4]> = (0..100_u32).map(u32::to_be_bytes).collect();
        // Instants that have passed, for which nothing waits whatever the queueing discipline.
        let sent = send_at(&sender, frames.iter().map(|frame| (1, frame.as_slice()))).unwrap();
        assert_eq!(sent, SEND_BATCH);
        let rest = send(&sender, frames[sent..].iter().map(<[u8; 4]>::as_slice)).unwrap();
        assert_eq!(sent + rest, frames.len());
        for frame in frames {
            let mut arrived = [0; 4];
            receiver.recv(&mut arrived).unwrap();
            assert_eq!(arrived, frame);
        }
    }
}
