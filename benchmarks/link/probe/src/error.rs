// SPDX-License-Identifier: Apache-2.0
//! Why a measurement could not be made, one line each.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// All of them.
#[derive(Debug, Error)]
pub(crate) enum ProbeError {
    #[error("configuration: {0}")]
    NotUnderstood(#[from] serde_json::Error),
    #[error("configuration: packet_bytes {0} is not between {least} and 9216", least = crate::frame::LEAST_PACKET)]
    PacketBytes(u32),
    #[error("configuration: a flow needs a rate_bit_s above 0")]
    Rate,
    #[error("interface '{interface}': {source}")]
    Port {
        interface: String,
        source: io::Error,
    },
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
}

impl ProbeError {
    /// 2 for a bad configuration, else 1.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::NotUnderstood(_) | Self::PacketBytes(_) | Self::Rate => 2,
            Self::Port { .. } | Self::File { .. } => 1,
        }
    }
}
