// SPDX-License-Identifier: Apache-2.0
//! Sockets in other network namespaces.

use crate::config::Port;
use crate::error::ProbeError;
use atoll_netio::interface::Interface;
use atoll_netio::packet_socket::PacketSocket;
use atoll_netio::process::enter_network_namespace;
use std::io;
use std::thread;

/// The longest frame that is sent; arriving frames are not read.
const FRAME_BYTES: u32 = 1600;

/// A socket to send on `port` with.
pub(crate) fn open_sender(port: &Port) -> Result<PacketSocket, ProbeError> {
    open(port, |interface| PacketSocket::open(interface, FRAME_BYTES))
}

/// Call `build` with the interface of `port` in that port's namespace, to which an opened socket belongs for good.
pub(crate) fn open<T: Send>(
    port: &Port,
    build: impl FnOnce(&Interface) -> io::Result<T> + Send,
) -> Result<T, ProbeError> {
    // A thread for it: namespaces are a thread's, and this one's is to stay.
    let made = thread::scope(|scope| {
        let there = scope.spawn(|| {
            if let Some(netns) = &port.netns {
                enter_network_namespace(netns)?;
            }
            build(&Interface::find(&port.interface)?)
        });
        there
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    made.map_err(|source| ProbeError::Port {
        interface: port.interface.clone(),
        source,
    })
}
