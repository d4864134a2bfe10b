// SPDX-License-Identifier: Apache-2.0
//! Runs `atoll-link-model` on the frame engine: the link and delay programs.
//!
//! ```text
//! FrameProgram::on_frame    the model decides when a frame leaves, and keeps it
//! FrameProgram::on_wake     the model's due frames
//! FrameProgram::on_request  marks, changed settings, the start of traces
//! ```

mod config;
mod delay;
mod emulator;
mod frame;
mod link;
mod report;
#[cfg(test)]
mod tests;

use atoll_frame_engine::{Departures, Engine, Port, Settings};
use atoll_job::{Input, wrong_setting};
use config::{DelayConfig, LinkConfig};
use emulator::Emulator;
use std::io;

/// `atoll-host link`: reads its configuration from the first line of standard input.
///
/// # Errors
/// A message for the user when the configuration (an [`std::io::Error`] of kind `InvalidInput`) or the
/// machine does not allow the link, or an interface goes away while it runs.
pub fn run_link() -> Result<(), Box<dyn std::error::Error>> {
    let mut input = Input::standard();
    let config = LinkConfig::parse(&input.first_line()?)?;
    let ports = vec![
        Port::open(&config.world, config.mtu)?,
        Port::open(&config.island, config.mtu)?,
    ];
    let began_ns = atoll_job::clock::monotonic_ns();
    let program = link::LinkProgram::new(&config, began_ns).map_err(wrong_setting)?;
    let settings = waiting(config.departures, config.spin_ns);
    Ok(Engine::new(Emulator(program), ports, settings)?.run(input)?)
}

/// `atoll-host delay`: reads its configuration from the first line of standard input.
///
/// # Errors
/// As [`run_link`].
pub fn run_delay() -> Result<(), Box<dyn std::error::Error>> {
    let mut input = Input::standard();
    let config = DelayConfig::parse(&input.first_line()?)?;
    let interfaces = config.interfaces().into_iter();
    let ports = interfaces.map(|name| Port::open(name, config.mtu));
    let ports = ports.collect::<io::Result<_>>()?;
    let program = delay::DelayProgram::new(&config).map_err(wrong_setting)?;
    let settings = waiting(config.departures, config.spin_ns);
    Ok(Engine::new(Emulator(program), ports, settings)?.run(input)?)
}

fn waiting(departures: Option<Departures>, spin_ns: Option<u64>) -> Settings {
    Settings {
        departures,
        spin_ns,
        polling_ns: None,
    }
}
