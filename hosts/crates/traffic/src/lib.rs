// SPDX-License-Identifier: Apache-2.0
//! World servers, island channels, large transfer, UDP and pings.
//!
//! Each job is one thread and one epoll loop ([`events`]); it takes its configuration from the first line of
//! standard input and ends with SIGTERM or the end of standard input. Messages are as in `docs/contracts.md`.
#![forbid(unsafe_code)]

mod events;
mod flows;
mod job;
mod load;
mod ping;
mod probe;
mod serve;
mod socket;
#[cfg(test)]
mod tests;
mod transfer;
mod udp;
mod writes;

use job::{Input, failed};
use std::error::Error;
use std::io;

/// `atoll-host serve`.
///
/// # Errors
/// A message for the user.
pub fn run_serve() -> Result<(), Box<dyn Error>> {
    run(serve::serve)
}

/// `atoll-host load`.
///
/// # Errors
/// A message for the user.
pub fn run_load() -> Result<(), Box<dyn Error>> {
    run(load::load)
}

/// `atoll-host transfer`.
///
/// # Errors
/// A message for the user.
pub fn run_transfer() -> Result<(), Box<dyn Error>> {
    run(transfer::transfer)
}

/// `atoll-host ping`.
///
/// # Errors
/// A message for the user.
pub fn run_ping() -> Result<(), Box<dyn Error>> {
    run(ping::ping)
}

/// `atoll-host probe`.
///
/// # Errors
/// A message for the user.
pub fn run_probe() -> Result<(), Box<dyn Error>> {
    run(probe::probe)
}

/// `atoll-host udp`.
///
/// # Errors
/// A message for the user.
pub fn run_udp() -> Result<(), Box<dyn Error>> {
    run(udp::udp)
}

/// `atoll-host flows`.
///
/// # Errors
/// A message for the user.
pub fn run_flows(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    Ok(flows::flows(arguments)?)
}

fn run<C: serde::de::DeserializeOwned>(
    job: impl FnOnce(&C, Input) -> io::Result<()>,
) -> Result<(), Box<dyn Error>> {
    let mut input = Input::standard();
    let line = input
        .first_line()
        .map_err(failed("read the configuration from standard input"))?;
    Ok(job(&atoll_job::configuration(&line)?, input)?)
}
