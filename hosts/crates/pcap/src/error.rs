// SPDX-License-Identifier: Apache-2.0
//! Why a capture cannot be decoded, each as one line for the user.

use std::io;

/// Why a capture cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum PcapError {
    /// The file could not be opened, read or written.
    #[error("{path}: {source}")]
    File {
        /// Which one.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The newer format, which tcpdump does not write.
    #[error("{0}: is a pcapng file; convert it: tcpdump -r {0} -w OUT.pcap")]
    PcapNg(String),
    /// Neither format.
    #[error("{0}: is not a capture file (no pcap magic number)")]
    NotACapture(String),
    /// Not captured on an Ethernet interface.
    #[error(
        "{path}: has link type {link_type}, not Ethernet; capture on one interface, not on \"any\""
    )]
    LinkType {
        /// The file.
        path: String,
        /// As in the file's header.
        link_type: u32,
    },
    /// A packet of impossible length.
    #[error("{path}: frame {frame} claims {bytes} bytes: the file is damaged")]
    Damaged {
        /// The file.
        path: String,
        /// Which frame, counted from 1.
        frame: u64,
        /// The length it claims.
        bytes: u32,
    },
    /// An output that would replace its input.
    #[error("{0}: is the capture itself; name another output")]
    Input(String),
    /// An output that is a device, a pipe or a directory.
    #[error("{0}: is not a regular file")]
    NotRegular(String),
    /// `--side` or `--without` is no prefix.
    #[error("{0:?} is not an IPv4 prefix such as 10.20.0.0/16")]
    Prefix(String),
}

impl PcapError {
    /// The error of using `path`.
    pub(crate) fn file(path: &str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}
