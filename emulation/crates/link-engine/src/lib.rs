// SPDX-License-Identifier: Apache-2.0
//! Runs `link-model` on packet sockets: the link and delay programs.
//!
//! ```text
//! packet socket ── receive ring ──> Program::arrival     link-model decides when it leaves
//!                                   Program::pop_due ──> packet socket      one thread: `engine`
//!                                                        └─ or the kernel's `fq`, with the instant: `kernel_departures`
//! standard input ── marks ────────> Program::measurement, counters
//!                                   lines ──> standard output                a thread of its own: `atoll_job::Output`
//! ```
//!
//! One thread serves both directions: a packet costs it a few microseconds, and a second thread would
//! need locks around the counters and compete for the same processors (measurements:
//! docs/decisions/0008-link-engine-one-thread.md).

mod clock;
mod config;
#[cfg(test)]
mod contract;
mod delay;
mod engine;
mod error;
mod frame;
mod kernel_pacing;
mod link;
mod ports;
mod precise_wait;
mod punctuality;
mod report;
mod request;

use atoll_job::Input;
use config::{DelayConfig, LinkConfig};
use engine::Engine;
use ports::Port;
use std::io;

/// `atoll-host link`: reads its configuration from the first line of standard input.
///
/// # Errors
/// A message for the user when the configuration (an [`std::io::Error`] of kind `InvalidInput`) or the
/// machine does not allow the link, or an interface goes away while it runs.
pub fn run_link() -> Result<(), Box<dyn std::error::Error>> {
    let mut input = Input::standard();
    let config = LinkConfig::parse(&input.first_line()?).map_err(io::Error::from)?;
    let ports = vec![
        Port::open(&config.world, config.mtu)?,
        Port::open(&config.island, config.mtu)?,
    ];
    let program = link::LinkProgram::new(&config, atoll_job::clock::monotonic_ns())
        .map_err(io::Error::from)?;
    Ok(Engine::new(program, ports, config.departures)?.run(input, config.spin_ns)?)
}

/// `atoll-host delay`: reads its configuration from the first line of standard input.
///
/// # Errors
/// As [`run_link`].
pub fn run_delay() -> Result<(), Box<dyn std::error::Error>> {
    let mut input = Input::standard();
    let config = DelayConfig::parse(&input.first_line()?).map_err(io::Error::from)?;
    let ports = vec![Port::open(&config.trunk, config.mtu)?];
    let program = delay::DelayProgram::new(&config).map_err(io::Error::from)?;
    Ok(Engine::new(program, ports, config.departures)?.run(input, config.spin_ns)?)
}
