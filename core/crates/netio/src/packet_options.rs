// SPDX-License-Identifier: Apache-2.0
//! Basics of packet sockets (packet(7)): creation, options, shared memory, binding to an interface.

use crate::syscall::check;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// A packet socket that receives nothing yet: its protocol is 0 until [`bind`]. `kind`: `SOCK_RAW`, or `SOCK_DGRAM` for packets
/// without link header.
pub(crate) fn unbound(kind: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: creates a descriptor; nothing else holds it.
    let socket = unsafe {
        libc::socket(
            libc::AF_PACKET,
            kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
            0,
        )
    };
    check(socket)?;
    // SAFETY: `socket` was just created and is owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

/// Make the interface with this number promiscuous while `socket` is open.
pub(crate) fn make_promiscuous(socket: impl AsFd, interface: u32) -> io::Result<()> {
    let promiscuous = libc::packet_mreq {
        mr_ifindex: index_of(interface)?,
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(socket, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)
}

/// Enable auxiliary data with each packet, which holds its VLAN tag.
pub(crate) fn enable_auxiliary_data(socket: impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    set_option(socket, libc::PACKET_AUXDATA, &on)
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

/// Map the ring of `socket`, whose blocks have `bytes` in all.
pub(crate) fn share(socket: &OwnedFd, bytes: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing; the kernel checks
    // that its length is that of the ring.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            socket.as_raw_fd(),
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
}

/// Set an option of level `SOL_PACKET`.
pub(crate) fn set_option<T>(socket: impl AsFd, name: libc::c_int, option: &T) -> io::Result<()> {
    // SAFETY: pointer and length describe `option`, which the kernel only reads.
    check(unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_PACKET,
            name,
            std::ptr::from_ref(option).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
}
