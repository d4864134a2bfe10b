// SPDX-License-Identifier: Apache-2.0
//! World servers, island channels, large transfer, UDP and pings.
//!
//! Each job is one thread and one epoll loop ([`events`]); it takes its configuration from the first line of
//! standard input and ends with SIGTERM or the end of standard input. Messages are as in `docs/contracts.md`.
#![forbid(unsafe_code)]

mod clock;
#[cfg(test)]
mod contract;
mod error;
mod events;
mod flows;
mod job;
mod load;
mod ping;
mod probe;
mod serve;
mod sizes;
mod socket;
mod transfer;
mod udp;

use error::TrafficError;
use job::Input;
use std::error::Error;

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
    flows::flows(arguments).map_err(TrafficError::boxed)
}

fn run<C: serde::de::DeserializeOwned>(
    job: impl FnOnce(&C, Input) -> Result<(), TrafficError>,
) -> Result<(), Box<dyn Error>> {
    job::configuration()
        .and_then(|(config, input)| job(&config, input))
        .map_err(TrafficError::boxed)
}
