// SPDX-License-Identifier: Apache-2.0
//! Errors of links emulated by the kernel.

use rustix::io::Errno;
use std::io;

/// A run-time error of a link with a valid configuration (exit code 1).
#[derive(Debug, thiserror::Error)]
pub(crate) enum TcError {
    #[error("{0}")]
    Failed(String),
    #[error("rtnetlink: {0}")]
    Netlink(io::Error),
    #[error("{0}")]
    System(#[from] io::Error),
}

impl TcError {
    /// Whether the kernel reports that the object does not exist.
    pub(crate) fn is_gone(&self) -> bool {
        let number = match self {
            Self::Netlink(error) => error.raw_os_error(),
            _ => None,
        };
        number.is_some_and(|number| {
            [Errno::NODEV, Errno::NOENT].contains(&Errno::from_raw_os_error(number))
        })
    }
}
