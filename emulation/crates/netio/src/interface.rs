// SPDX-License-Identifier: Apache-2.0
//! Network interfaces of the calling thread's namespace: index, MTU, state, offloads.

use crate::syscall::check;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// An interface that existed when it was looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Name, as `ip link` shows it.
    pub name: String,
    /// Kernel's number, which survives renaming.
    pub index: u32,
}

/// `ethtool` commands that read one offload each (linux/ethtool.h) and what `ethtool -K` calls them.
const OFFLOADS: [(u32, u32, &str); 4] = [
    (0x1e, u32::MAX, "tso"), // ETHTOOL_GTSO
    (0x23, u32::MAX, "gso"), // ETHTOOL_GGSO
    (0x2b, u32::MAX, "gro"), // ETHTOOL_GGRO
    (0x25, 1 << 15, "lro"),  // ETHTOOL_GFLAGS, ETH_FLAG_LRO
];

/// `struct ethtool_value` (linux/ethtool.h).
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

impl Interface {
    /// Look up an interface by name.
    ///
    /// # Errors
    /// `NotFound` when there is none of that name.
    pub fn find(name: &str) -> io::Result<Self> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "no such interface");
        let c_name = CString::new(name).map_err(|_| missing())?;
        // SAFETY: `c_name` is a NUL-terminated string that lives during the call.
        let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
        if index == 0 || name.len() >= libc::IFNAMSIZ {
            return Err(missing());
        }
        Ok(Self {
            name: name.to_owned(),
            index,
        })
    }

    /// Whether an interface of this name and index is still there.
    #[must_use]
    pub fn exists(&self) -> bool {
        Self::find(&self.name).is_ok_and(|found| found == *self)
    }

    /// Largest packet in bytes, link header not included.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn mtu(&self) -> io::Result<u32> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFMTU as _, &mut request)?;
        // SAFETY: SIOCGIFMTU filled in this member of the union.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        u32::try_from(mtu).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
    }

    /// Whether the interface is administratively up.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn is_up(&self) -> io::Result<bool> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFFLAGS as _, &mut request)?;
        // SAFETY: SIOCGIFFLAGS filled in this member of the union.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        Ok(libc::c_int::from(flags) & libc::IFF_UP != 0)
    }

    /// Segmentation and aggregation offloads that are on, by their `ethtool -K` names. With any of
    /// them, what a packet socket sees are not the packets of the wire.
    ///
    /// # Errors
    /// When the interface is gone. A driver without offloads has none on.
    pub fn packet_merging_offloads(&self) -> io::Result<Vec<&'static str>> {
        let mut on = Vec::new();
        for (command, mask, name) in OFFLOADS {
            let mut offload = EthtoolValue { command, data: 0 };
            let mut request = self.request();
            request.ifr_ifru.ifru_data = (&raw mut offload).cast();
            match self.ioctl(libc::SIOCETHTOOL as _, &mut request) {
                Ok(()) if offload.data & mask != 0 => on.push(name),
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(on)
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: `ifreq` is plain old data, for which all zeros is a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (slot, byte) in request.ifr_name.iter_mut().zip(self.name.bytes()) {
            *slot = libc::c_char::from_ne_bytes([byte]); // shorter than IFNAMSIZ, so the last byte stays 0
        }
        request
    }

    #[expect(
        clippy::unused_self,
        reason = "ioctls of an interface, whose name stands in the request"
    )]
    fn ioctl(&self, number: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: creates a descriptor; nothing else holds it.
        let socket =
            unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        check(socket)?;
        // SAFETY: `socket` was just created and is owned by nobody else.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        // SAFETY: all ioctls used here take a `struct ifreq`, whose pointers (SIOCETHTOOL) stay valid
        // during the call.
        check(unsafe { libc::ioctl(socket.as_raw_fd(), number, request) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_found_with_its_mtu() {
        let loopback = Interface::find("lo").unwrap();
        assert!(loopback.exists());
        assert!(loopback.mtu().unwrap() >= 1500);
        assert!(loopback.packet_merging_offloads().is_ok());
    }

    #[test]
    fn names_that_are_no_interface_are_not_found() {
        for name in ["no-such-if", "", "a\0b", "a-name-longer-than-any-interface"] {
            assert_eq!(
                Interface::find(name).unwrap_err().kind(),
                io::ErrorKind::NotFound,
                "{name:?}"
            );
        }
    }
}
