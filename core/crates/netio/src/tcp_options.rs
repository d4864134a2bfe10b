// SPDX-License-Identifier: Apache-2.0
//! TCP socket options that neither the standard library nor `rustix` reaches.

use crate::syscall::{read_option, set_option};
use std::io;
use std::os::fd::AsFd;

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
    set_option(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, &bytes)
}

/// Limit each connection of `socket` to `bytes_s` bytes a second, by pacing its segments
/// (`SO_MAX_PACING_RATE`, Linux 3.13; without the `fq` queueing discipline TCP paces itself, Linux 4.13). Connections that
/// a listening socket accepts inherit it.
///
/// # Errors
/// Those of setsockopt(2); none are expected of a TCP socket.
pub fn set_max_pacing_rate(socket: impl AsFd, bytes_s: u64) -> io::Result<()> {
    let bytes_s = libc::c_ulong::try_from(bytes_s).unwrap_or(libc::c_ulong::MAX);
    set_option(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &bytes_s)
}

/// The largest window that `socket` announces (`TCP_WINDOW_CLAMP`, tcp(7)). Connections that a listening socket accepts inherit
/// it.
///
/// # Errors
/// Those of setsockopt(2); none are expected of a TCP socket.
pub fn set_window_clamp(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, &bytes)
}

/// How often `socket` repeats a SYN, or if it listens, a SYN-ACK (`TCP_SYNCNT`, tcp(7)).
///
/// # Errors
/// `EINVAL` if it is not between 1 and 127.
pub fn set_handshake_repeats(socket: impl AsFd, repeats: u32) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_SYNCNT, &repeats)
}

/// Have connections that `socket`, which listens, accepts carry data in their SYN (`TCP_FASTOPEN`, RFC 7413), `waiting` at most that
/// have not completed their handshakes. The sysctl `net.ipv4.tcp_fastopen` has to allow it.
///
/// # Errors
/// Those of setsockopt(2); none are expected of a socket that listens.
pub fn accept_fast_open(socket: impl AsFd, waiting: u32) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, &waiting)
}

/// Have `socket` send its SYN with the first data that it is given, after connect(2) (`TCP_FASTOPEN_CONNECT`, Linux 4.11). The
/// sysctl `net.ipv4.tcp_fastopen` has to allow it; without, connect(2) sends it.
///
/// # Errors
/// Those of setsockopt(2); none are expected of a new TCP socket.
pub fn set_fast_open_connect(socket: impl AsFd) -> io::Result<()> {
    set_option(
        socket,
        libc::IPPROTO_TCP,
        libc::TCP_FASTOPEN_CONNECT,
        &1_u32,
    )
}

/// Option of level `SOL_SOCKET` (asm-generic/socket.h; Linux 4.12).
const SO_MEMINFO: libc::c_int = 55;

/// Bytes that the send buffer of `socket` has room for. The kernel also counts what it needs to manage them, and accepts
/// up to a segment more.
///
/// # Errors
/// Those of getsockopt(2); none are expected.
pub fn send_room(socket: impl AsFd) -> io::Result<usize> {
    let counts = [0_u32; 9]; // SK_MEMINFO_VARS of linux/sock_diag.h
    let counts = read_option(socket, libc::SOL_SOCKET, SO_MEMINFO, counts)?;
    let [size, queued] = [libc::SK_MEMINFO_SNDBUF, libc::SK_MEMINFO_WMEM_QUEUED]
        .map(|index| counts[index.unsigned_abs() as usize]);
    Ok(size.saturating_sub(queued) as usize)
}

/// Progress of a TCP connection, by one of its ends (`TCP_INFO`, linux/tcp.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpProgress {
    /// The peer has not answered its SYN.
    pub connecting: bool,
    /// Nothing can be sent or received any more: both directions are closed and acknowledged, or the connection was reset.
    pub closed: bool,
    /// Smoothed round-trip time; 0: not measured.
    pub rtt_us: u32,
    /// Payload, SYN and FIN that the peer has acknowledged.
    pub acknowledged_bytes: u64,
    /// Payload received in order.
    pub received_bytes: u64,
    /// The congestion window.
    pub window_segments: u32,
    /// Congestion control has reduced the window, because of a loss for example: there is a slow-start threshold. BBR, whose window
    /// is small at times because it probes, sets none.
    pub has_reduced_window: bool,
    /// Segments sent and not acknowledged.
    pub unacknowledged_segments: u32,
    /// Payload in the send buffer that was never sent.
    pub unsent_bytes: u32,
    /// Time since the peer's last acknowledgement of anything, a keepalive probe included.
    pub since_acknowledgement_ms: u32,
}

impl TcpProgress {
    /// Whether the peer has everything that was sent.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.unacknowledged_segments == 0 && self.unsent_bytes == 0
    }
}

/// Progress of the connection of `socket`.
///
/// # Errors
/// Those of getsockopt(2); none are expected of a TCP socket.
pub fn progress(socket: impl AsFd) -> io::Result<TcpProgress> {
    const SYN_SENT: u8 = 2; // TCP_SYN_SENT of linux/tcp_states.h
    const SYN_RECEIVED: u8 = 3; // TCP_SYN_RECV
    const CLOSED: u8 = 7; // TCP_CLOSE
    const NO_THRESHOLD: u32 = 0x7fff_ffff; // TCP_INFINITE_SSTHRESH of net/tcp.h
    // SAFETY: `tcp_info` is plain old data, for which all zeros is a value; an older kernel fills in less of it.
    let info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let info = read_option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, info)?;
    Ok(TcpProgress {
        connecting: info.tcpi_state == SYN_SENT,
        closed: info.tcpi_state == CLOSED,
        rtt_us: info.tcpi_rtt,
        acknowledged_bytes: info.tcpi_bytes_acked,
        received_bytes: info.tcpi_bytes_received,
        window_segments: info.tcpi_snd_cwnd,
        has_reduced_window: info.tcpi_snd_ssthresh < NO_THRESHOLD,
        unacknowledged_segments: info.tcpi_unacked,
        unsent_bytes: info.tcpi_notsent_bytes,
        // By fast open, one that is accepted before the first acknowledgement.
        since_acknowledgement_ms: if info.tcpi_state == SYN_RECEIVED {
            0
        } else {
            info.tcpi_last_ack_recv
        },
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

    #[test]
    fn progress_shows_bytes_and_the_end_and_room_shrinks_by_what_waits() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        client.set_nonblocking(true).unwrap();
        let before = send_room(&client).unwrap();
        let mut sent = 0;
        while let Ok(count) = client.write(&[0; 1 << 12]) {
            sent += count as u64;
        }
        assert_eq!(send_room(&client).unwrap(), 0);
        assert!(before > 0);
        let of_client = progress(&client).unwrap();
        let of_server = progress(&server).unwrap();
        assert!(!of_client.closed && !of_client.is_flushed() && !of_client.has_reduced_window);
        assert!(of_server.received_bytes <= sent && of_server.received_bytes > 0);
        drop(server); // with unread data: RST
        assert!(readable(&client, 10));
        assert!(progress(&client).unwrap().closed);
    }
}
