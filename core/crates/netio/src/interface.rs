// SPDX-License-Identifier: Apache-2.0
//! Network interfaces of the calling thread's namespace: index, MTU, state, offloads; whether a link can use one.

use crate::packet_options;
use crate::syscall::{check, set_option};
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

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

/// Have the packet socket `socket` deliver packets with their VLAN tag (`VlanTag::of_control_message`).
///
/// # Errors
/// If `socket` is no packet socket.
pub fn enable_vlan_tags(socket: impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    set_option(socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, &on)
}

impl Interface {
    /// Look up an interface by name.
    ///
    /// # Errors
    /// `NotFound` when there is none of that name; others when the kernel returns an error.
    pub fn find(name: &str) -> io::Result<Self> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "no such interface");
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('\0') {
            return Err(missing());
        }
        let index = name_to_index(control_socket()?, name).map_err(|error| match error {
            Errno::NODEV => missing(),
            _ => error.into(),
        })?;
        Ok(Self {
            name: name.to_owned(),
            index,
        })
    }

    /// Make the interface promiscuous while the packet socket `socket` is open.
    ///
    /// # Errors
    /// If the interface is gone, or `socket` is no packet socket.
    pub fn make_promiscuous(&self, socket: impl AsFd) -> io::Result<()> {
        packet_options::make_promiscuous(socket, self.index)
    }

    /// Look up an interface that is up.
    ///
    /// # Errors
    /// As of [`Interface::find`]; `NetworkDown`.
    pub fn find_up(name: &str) -> io::Result<Self> {
        let interface = Self::find(name)?;
        if interface.is_up()? {
            return Ok(interface);
        }
        let message = "the interface is down";
        Err(io::Error::new(io::ErrorKind::NetworkDown, message))
    }

    /// Look up an interface that is up and hands over packets of up to `mtu` bytes as they were sent.
    ///
    /// # Errors
    /// The first condition that does not hold.
    pub fn find_usable(name: &str, mtu: u32) -> Result<Self, String> {
        let unknown = |error: io::Error| match (error.kind(), error.raw_os_error()) {
            (io::ErrorKind::NotFound, _) | (_, Some(libc::ENODEV)) => {
                format!("interface '{name}' does not exist in this network namespace")
            }
            _ => format!("interface '{name}' cannot be examined: {error}"),
        };
        let interface = Self::find(name).map_err(unknown)?;
        if !interface.is_up().map_err(unknown)? {
            return Err(format!("interface '{name}' is down: ip link set {name} up"));
        }
        let own_mtu = interface.mtu().map_err(unknown)?;
        if own_mtu < mtu {
            return Err(format!(
                "interface '{name}' has MTU {own_mtu}, packets may have {mtu} bytes: ip link set {name} mtu {mtu}"
            ));
        }
        let offloads = interface.packet_merging_offloads().map_err(unknown)?;
        if !offloads.is_empty() {
            return Err(merging(name, &offloads));
        }
        Ok(interface)
    }

    /// Whether an interface of this name and index is still there, or cannot be examined.
    #[must_use]
    pub fn exists(&self) -> bool {
        match Self::find(&self.name) {
            Ok(present) => present == *self,
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Largest packet in bytes, link header not included.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn mtu(&self) -> io::Result<u32> {
        let mut request = request(&self.name);
        ioctl(libc::SIOCGIFMTU as _, &mut request)?;
        // SAFETY: SIOCGIFMTU filled in this member of the union.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        u32::try_from(mtu).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
    }

    /// Whether the interface is administratively up.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn is_up(&self) -> io::Result<bool> {
        let mut request = request(&self.name);
        ioctl(libc::SIOCGIFFLAGS as _, &mut request)?;
        // SAFETY: SIOCGIFFLAGS filled in this member of the union.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        Ok(libc::c_int::from(flags) & libc::IFF_UP != 0)
    }

    /// Segmentation and aggregation offloads that are on, by their `ethtool -K` names. With any of
    /// them, a packet socket does not see the packets of the wire.
    ///
    /// # Errors
    /// When the interface is gone. A driver without offloads has none on.
    pub fn packet_merging_offloads(&self) -> io::Result<Vec<&'static str>> {
        let mut on = Vec::new();
        for (command, mask, name) in OFFLOADS {
            let mut offload = EthtoolValue { command, data: 0 };
            let mut request = request(&self.name);
            request.ifr_ifru.ifru_data = (&raw mut offload).cast();
            match ioctl(libc::SIOCETHTOOL as _, &mut request) {
                Ok(()) if offload.data & mask != 0 => on.push(name),
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(on)
    }
}

fn merging(name: &str, offloads: &[&str]) -> String {
    let list = offloads.join(", ");
    let off = offloads.iter().map(|offload| format!("{offload} off"));
    let off = off.collect::<Vec<_>>().join(" ");
    format!("interface '{name}' merges packets ({list}): ethtool -K {name} {off}")
}

/// A request about the interface of a name that is shorter than `IFNAMSIZ`.
fn request(name: &str) -> libc::ifreq {
    // SAFETY: `ifreq` is plain old data, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = libc::c_char::from_ne_bytes([byte]); // so the last byte stays 0
    }
    request
}

/// A socket to ask about interfaces.
fn control_socket() -> rustix::io::Result<OwnedFd> {
    socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )
}

fn ioctl(number: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    let socket = control_socket()?;
    // SAFETY: all ioctls used here take a `struct ifreq`, whose pointers (SIOCETHTOOL) stay valid
    // during the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), number, request) })
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

    #[test]
    fn an_unusable_interface_is_reported_with_the_remedy() {
        let missing = Interface::find_usable("no-such-if", 1500).unwrap_err();
        assert_eq!(
            missing,
            "interface 'no-such-if' does not exist in this network namespace"
        );
        assert_eq!(
            merging("x", &["tso", "gro"]),
            "interface 'x' merges packets (tso, gro): ethtool -K x tso off gro off"
        );
    }
}
