// SPDX-License-Identifier: Apache-2.0
//! Errors of ports and of the engine, all at run time.

use std::io;

/// A run-time error of a program with a valid configuration.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// An interface was deleted.
    #[error("interface '{0}' is gone")]
    InterfaceGone(String),
    /// The user may not open packet sockets.
    #[error(
        "packet socket on '{name}': {source} (this needs CAP_NET_RAW: run as root or in your own user namespace)"
    )]
    NotPermitted {
        /// The interface.
        name: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A packet socket could not be opened.
    #[error("packet socket on '{name}': {source}")]
    Socket {
        /// The interface.
        name: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel cannot time departures.
    #[error(
        "the kernel cannot time departures: {0}; use Linux with the fq queueing discipline and CAP_NET_ADMIN, or remove \"departures\""
    )]
    KernelDepartures(io::Error),
    /// The kernel refused to wait.
    #[error("waiting for packets: {0}")]
    Poll(#[from] rustix::io::Errno),
    /// Another error of the kernel.
    #[error("{0}")]
    System(#[from] io::Error),
}
