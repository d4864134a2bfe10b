// SPDX-License-Identifier: Apache-2.0
//! Receiving several datagrams by one system call (recvmmsg(2)).

use crate::syscall::check;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Wait for a datagram, then also take those already queued behind it: one into each buffer. Returns their lengths in
/// bytes, at least one of them. A datagram that is longer than its buffer is cut short.
///
/// # Errors
/// As recvmmsg(2).
pub fn receive<const N: usize>(
    socket: &OwnedFd,
    buffers: &mut [&mut [u8]; N],
) -> io::Result<impl Iterator<Item = usize> + use<N>> {
    let mut slices = buffers.each_mut().map(|buffer| libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    });
    // SAFETY: `mmsghdr` is plain old data, for which all zeros is a value.
    let mut messages: [libc::mmsghdr; N] = unsafe { std::mem::zeroed() };
    for (message, slice) in messages.iter_mut().zip(&mut slices) {
        message.msg_hdr.msg_iov = slice;
        message.msg_hdr.msg_iovlen = 1;
    }
    let received = loop {
        // SAFETY: the messages, N of them, point to slices that describe buffers of ours; all of it lives during the
        // call.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr(),
                N as libc::c_uint,
                libc::MSG_WAITFORONE as _,
                std::ptr::null_mut(),
            )
        };
        match check(received) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            checked => break checked.map(|()| received)?,
        }
    };
    let lengths = messages.map(|message| message.msg_len as usize);
    Ok(lengths.into_iter().take(received.unsigned_abs() as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    extern "C" fn ignore(_: libc::c_int) {}

    #[test]
    fn a_signal_meanwhile_is_no_error() {
        // SAFETY: the handler does nothing, and no other test uses this signal; without SA_RESTART it interrupts.
        let waiter = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ignore as *const () as libc::sighandler_t;
            libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut());
            libc::pthread_self()
        };
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = receiver.local_addr().unwrap();
        let socket = OwnedFd::from(receiver);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20 {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                    // SAFETY: the thread waits until this one has sent.
                    unsafe { libc::pthread_kill(waiter, libc::SIGUSR2) };
                }
                let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
                sender.send_to(b"at last", address).unwrap();
            });
            let lengths = receive(&socket, &mut [&mut [0; 8]]).unwrap();
            assert_eq!(lengths.collect::<Vec<_>>(), [7]);
        });
    }

    #[test]
    fn what_is_there_is_received_at_once_and_what_is_not_is_not_waited_for() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        for text in [&b"first"[..], b"second", b"the third is too long"] {
            sender.send(text).unwrap();
        }
        let socket = OwnedFd::from(receiver);
        let (mut one, mut other) = ([0; 8], [0; 8]);
        let lengths = receive(&socket, &mut [&mut one, &mut other]).unwrap();
        assert_eq!(lengths.collect::<Vec<_>>(), [5, 6]);
        assert_eq!((&one[..5], &other[..6]), (&b"first"[..], &b"second"[..]));
        let lengths = receive(&socket, &mut [&mut one, &mut other]).unwrap();
        assert_eq!(lengths.collect::<Vec<_>>(), [8]);
        assert_eq!(&one, b"the thir");
    }
}
