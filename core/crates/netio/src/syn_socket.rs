// SPDX-License-Identifier: Apache-2.0
//! Seeing the first segments of TCP connections that arrive at an interface: the kernel filters all others out.

use crate::interface::Interface;
use crate::packet_options::{bind_protocol, enable_auxiliary_data};
use crate::syscall::check;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Whether an IPv4 packet's TCP checksum is as it left its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// Yes, or nobody has examined it.
    Present,
    /// The sender has left it to hardware, and there was none.
    Missing,
}

/// A packet socket that receives IPv4 packets with a TCP segment that has SYN and not ACK, without link header.
#[derive(Debug)]
pub struct SynSocket(OwnedFd);

/// `struct tpacket_auxdata` (`linux/if_packet.h`).
#[repr(C)]
struct AuxiliaryData {
    status: u32,
    len: u32,
    snaplen: u32,
    mac: u16,
    net: u16,
    vlan_tci: u16,
    vlan_tpid: u16,
}

/// Room for one control message of that type.
const CONTROL_BYTES: usize = 64;

impl SynSocket {
    /// Receive what arrives at `interface`; not what this machine sends there.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `ENODEV` when the interface is gone.
    pub fn open(interface: &Interface) -> io::Result<Self> {
        // SAFETY: creates a descriptor; nothing else holds it.
        let socket = unsafe {
            libc::socket(
                libc::AF_PACKET,
                libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                0,
            )
        };
        check(socket)?;
        // SAFETY: `socket` was just created and is owned by nobody else.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        crate::capture::attach(&socket, &mut program())?;
        enable_auxiliary_data(&socket)?;
        bind_protocol(&socket, interface.index, libc::ETH_P_IP as u16)?;
        Ok(Self(socket))
    }

    /// The next packet, cut to the length of `buffer`; none: there is no further one.
    ///
    /// # Errors
    /// `ENETDOWN` when the interface went down or away.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, Checksum)>> {
        let mut slice = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        let mut control = [0_u64; CONTROL_BYTES / 8]; // aligned as `cmsghdr` is
        // SAFETY: `msghdr` is plain old data, for which all zeros is a value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut slice;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_BYTES as _;
        // SAFETY: the message points to a slice that describes `buffer`, and to `control`; all of it lives during the call.
        let received = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, 0) };
        let Ok(length) = usize::try_from(received) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        };
        // SAFETY: the kernel has filled in `message`, whose control messages lie in `control`.
        let status = unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            if header.is_null()
                || (*header).cmsg_level != libc::SOL_PACKET
                || (*header).cmsg_type != libc::PACKET_AUXDATA
            {
                0
            } else {
                libc::CMSG_DATA(header)
                    .cast::<AuxiliaryData>()
                    .read_unaligned()
                    .status
            }
        };
        let checksum = if status & libc::TP_STATUS_CSUMNOTREADY == 0 {
            Checksum::Present
        } else {
            Checksum::Missing
        };
        Ok(Some((length, checksum)))
    }
}

impl AsFd for SynSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The packet filter: of IPv4 packets that arrive, unfragmented, those with a TCP segment that has SYN and not ACK.
/// Offsets are from the IPv4 header, as the socket delivers no link header.
fn program() -> Vec<libc::sock_filter> {
    const REJECT: u8 = 10; // the last statement
    let packet_type = u32::from_ne_bytes((libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE).to_ne_bytes());
    let load = |size: u32, mode: u32, at: u32| statement(libc::BPF_LD | size | mode, at, 0, 0);
    let jump = |test: u32, operand: u32, yes: u8, no: u8| {
        statement(libc::BPF_JMP | test | libc::BPF_K, operand, yes, no)
    };
    let to_reject = |at: u8| REJECT - at - 1;
    vec![
        load(libc::BPF_B, libc::BPF_ABS, packet_type),
        jump(
            libc::BPF_JEQ,
            u32::from(libc::PACKET_OUTGOING),
            to_reject(1),
            0,
        ),
        load(libc::BPF_B, libc::BPF_ABS, 9), // protocol
        jump(libc::BPF_JEQ, libc::IPPROTO_TCP as u32, 0, to_reject(3)),
        load(libc::BPF_H, libc::BPF_ABS, 6), // more fragments, offset
        jump(libc::BPF_JSET, 0x3fff, to_reject(5), 0),
        statement(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0, 0, 0), // length of the header
        load(libc::BPF_B, libc::BPF_IND, 13),                            // flags
        statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0x12, 0, 0),
        jump(libc::BPF_JEQ, 0x02, 1, 0),
        statement(libc::BPF_RET, 0, 0, 0),
        statement(libc::BPF_RET, 0xffff, 0, 0),
    ]
}

fn statement(code: u32, operand: u32, yes: u8, no: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k: operand,
    }
}
