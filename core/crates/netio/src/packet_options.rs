// SPDX-License-Identifier: Apache-2.0
//! Basics of packet sockets (packet(7)): creation, shared memory, binding to an interface.

use crate::syscall::{check, set_option};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

/// A packet socket that receives nothing yet: its protocol is 0 until [`bind`]. `kind`: `RAW`, or `DGRAM` for packets
/// without link header.
pub(crate) fn unbound(kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::PACKET, kind, flags, None)?)
}

/// Make the interface with this number promiscuous while `socket` is open.
pub(crate) fn make_promiscuous(socket: impl AsFd, interface: u32) -> io::Result<()> {
    let promiscuous = libc::packet_mreq {
        mr_ifindex: index_of(interface)?,
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    let (level, name) = (libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP);
    set_option(socket, level, name, &promiscuous)
}

fn index_of(interface: u32) -> io::Result<libc::c_int> {
    libc::c_int::try_from(interface).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))
}

/// Bind `socket` to the interface with this number, promiscuous, for all protocols.
pub(crate) fn bind(socket: &OwnedFd, interface: u32) -> io::Result<()> {
    make_promiscuous(socket, interface)?;
    bind_protocol(socket, interface, libc::ETH_P_ALL as u16)
}

/// Bind `socket` to the interface with this number, for one protocol (`linux/if_ether.h`).
pub(crate) fn bind_protocol(socket: &OwnedFd, interface: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: `sockaddr_ll` is plain old data, for which all zeros is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index_of(interface)?;
    // SAFETY: pointer and length describe `address`, which the kernel only reads.
    check(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    })
}

/// The error that makes `socket` poll as failed, and clear it.
pub(crate) fn take_error(socket: &OwnedFd) -> Option<io::Error> {
    match rustix::net::sockopt::socket_error(socket) {
        Ok(Ok(())) => None,
        Ok(Err(error)) | Err(error) => Some(error.into()),
    }
}

/// Memory shared with the kernel. Dropped before its socket is closed or after, it does not matter: the mapping keeps the
/// pages.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    pub(crate) base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone; nothing about it is tied to a thread.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// Give `socket` the receive ring of `request`, whose blocks have `bytes` in all.
    pub(crate) fn ring<R>(
        socket: &OwnedFd,
        version: libc::tpacket_versions,
        request: &R,
        bytes: usize,
    ) -> io::Result<Self> {
        let version = version as libc::c_int;
        set_option(socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, request)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing; the kernel checks
        // that its length is that of the ring.
        let base = unsafe { mmap(null_mut(), bytes, access, MapFlags::SHARED, socket, 0)? };
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, bytes })
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: base and length are those of the mapping; no reference into it lives on.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
