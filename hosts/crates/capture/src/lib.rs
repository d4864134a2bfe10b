// SPDX-License-Identifier: Apache-2.0
//! `atoll-host capture`: the frames of one interface into a pcap file.
//!
//! One thread and one poll loop ([`session`]) between the kernel's ring ([`netio::capture`]) and the file
//! ([`file`]), whose format is [`record`]. Messages are as in `docs/contracts.md`.
#![forbid(unsafe_code)]

mod config;
#[cfg(test)]
mod contract;
mod error;
mod file;
mod message;
mod record;
mod session;

use config::Config;
use error::CaptureError;
use std::error::Error;
use std::io;

/// `atoll-host capture`.
///
/// # Errors
/// A message for the user.
pub fn run() -> Result<(), Box<dyn Error>> {
    let mut line = String::new();
    io::stdin().read_line(&mut line)?; // what came behind it is dropped: a capture takes no orders but to stop
    let captured = Config::parse(&line).and_then(|config| session::capture(&config));
    captured.map_err(CaptureError::boxed)
}
