// SPDX-License-Identifier: Apache-2.0
//! Why a server did not accept.

use crate::first_segment::UnreachableCode;
use rustix::io::Errno;
use std::io;

/// Why a server did not accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Refused,
    Unreachable(UnreachableCode),
    /// No answer, or no room for the connection: the client tries again.
    Unanswered,
}

impl Refusal {
    /// By the error of a connection that could not be made.
    pub(crate) fn of(error: &io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::CONNREFUSED | Errno::CONNRESET) => Self::Refused,
            Some(Errno::NETUNREACH) => Self::Unreachable(UnreachableCode::Network),
            Some(Errno::HOSTUNREACH) => Self::Unreachable(UnreachableCode::Host),
            Some(Errno::NOPROTOOPT) => Self::Unreachable(UnreachableCode::Protocol),
            // No answer; or something is missing here, a port that is still in use for one.
            _ => Self::Unanswered,
        }
    }

    /// Its number in a frame.
    pub(crate) fn byte(self) -> u8 {
        match self {
            Self::Refused => 0,
            Self::Unanswered => 1,
            Self::Unreachable(code) => 2 + code as u8,
        }
    }

    /// The one with this number.
    pub(crate) fn of_byte(byte: u8) -> Option<Self> {
        use UnreachableCode::{Host, Network, Protocol};
        Some(match byte {
            0 => Self::Refused,
            1 => Self::Unanswered,
            2 => Self::Unreachable(Network),
            3 => Self::Unreachable(Host),
            4 => Self::Unreachable(Protocol),
            _ => return None,
        })
    }
}
