// SPDX-License-Identifier: Apache-2.0
//! TCP socket options that neither the standard library nor `rustix` reaches.

use crate::syscall::check;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Report `socket` as readable only once `bytes` wait in it, or the stream ends or fails (`SO_RCVLOWAT`,
/// socket(7); TCP also wakes early when its receive buffer is about to be full).
///
/// Far below the receive buffer it changes nothing else: Linux enlarges the buffer, and fixes the window it
/// announces, only for a low-water mark of more than half of it.
///
/// # Errors
/// Those of setsockopt(2); none are expected of a TCP socket.
pub fn set_receive_low_water(socket: impl AsFd, bytes: u16) -> io::Result<()> {
    let bytes = libc::c_int::from(bytes);
    // SAFETY: the option's contents are one int that lives during the call, and its size is given.
    check(unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })
}

/// Limit each connection of `socket` to `bytes_s` bytes a second, by pacing its segments
/// (`SO_MAX_PACING_RATE`, Linux 3.13; without the `fq` queueing discipline TCP paces itself, Linux 4.13). Connections that
/// a listening socket accepts inherit it.
///
/// # Errors
/// Those of setsockopt(2); none are expected of a TCP socket.
pub fn set_max_pacing_rate(socket: impl AsFd, bytes_s: u64) -> io::Result<()> {
    let bytes_s = libc::c_ulong::try_from(bytes_s).unwrap_or(libc::c_ulong::MAX);
    // SAFETY: the option's contents are one unsigned long that lives during the call, and its size is given.
    check(unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const bytes_s).cast(),
            size_of::<libc::c_ulong>() as libc::socklen_t,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    fn readable(stream: &TcpStream, seconds: i64) -> bool {
        let timeout = Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&timeout)).unwrap() == 1
    }

    #[test]
    fn few_bytes_wait_until_the_mark_or_the_end() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let receiver = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut sender, _) = listener.accept().unwrap();
        set_receive_low_water(&receiver, 1000).unwrap();
        sender.write_all(&[0; 999]).unwrap();
        assert!(!readable(&receiver, 0));
        sender.write_all(&[0; 1]).unwrap();
        assert!(readable(&receiver, 10));
        set_receive_low_water(&receiver, 2000).unwrap();
        assert!(!readable(&receiver, 0));
        drop(sender);
        assert!(readable(&receiver, 10));
    }
}
