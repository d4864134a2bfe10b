// SPDX-License-Identifier: Apache-2.0
//! `atoll-host capture`: the frames of one interface into a pcap file.
//!
//! One thread and one poll loop ([`session`]) between the kernel's ring ([`atoll_netio::capture`]) and the file
//! ([`file`]). Messages are as in `docs/contracts.md`.
#![forbid(unsafe_code)]

mod config;
mod file;
mod session;

use atoll_job::Input;
use config::Config;
use std::error::Error;

/// `atoll-host capture`.
///
/// # Errors
/// A message for the user.
pub fn run() -> Result<(), Box<dyn Error>> {
    let mut input = Input::standard();
    let config = Config::parse(&input.first_line()?)?;
    Ok(session::capture(&config, input)?)
}
