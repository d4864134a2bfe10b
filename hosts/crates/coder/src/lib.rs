// SPDX-License-Identifier: Apache-2.0
//! A network coder: `atoll-host coder`, as docs/contracts.md describes it.
//!
//! Two coders have a tunnel for each chain that passes both. Each encodes the packets towards the other one and decodes
//! those that come from there.
//!
//! ```text
//! packet of a host ──> Encoder ──┬─ the packet, with a header ────────────────> outer IPv4 and UDP ──> link
//!                                └─ repair packets ──> Scheduler (when?) ─────> outer IPv4 and UDP ──> link
//! outer packet ──> Decoder ──> the packet at once, and those that could be recovered ──> host
//!                     └─ reports, now and then ──> the other coder's Encoder and Scheduler
//! ```
#![forbid(unsafe_code)]

mod config;
mod counters;
mod decoder;
mod detached;
mod encoder;
mod feedback;
mod flow_table;
mod in_order;
mod ipv4;
mod lab_packets;
mod numbering;
mod outer;
mod outlet;
mod program;
mod scheduler;
mod sliding_decoder;
mod sliding_encoder;
mod stream;
mod tunnel;
mod virtual_queue;

use atoll_frame_engine::{Departures, Engine, Port, Settings};
use atoll_job::{Input, clock};
use atoll_netio::memory_limit::limit_memory;
use config::Config;
pub use detached::DetachedCoder;
use program::Coder;
use std::error::Error;
use std::io;

/// `atoll-host coder`: reads its configuration from the first line of standard input.
///
/// # Errors
/// A message for the user when the configuration (an [`io::Error`] of kind `InvalidInput`) or the machine does not
/// allow the coder, or an interface goes away while it runs.
pub fn run() -> Result<(), Box<dyn Error>> {
    let mut input = Input::standard();
    let config = Config::parse(&input.first_line()?)?;
    limit_memory(config.memory_bytes(), Config::MEMORY_SETTINGS)?;
    let ports = config
        .interfaces()
        .map(|interface| Port::open(&interface.name, interface.mtu))
        .collect::<io::Result<Vec<Port>>>()?;
    let settings = Settings {
        departures: Some(Departures::Engine), // nothing is known before it is due
        spin_ns: None,
        // A wake-up for each packet is cheap in real time alone.
        polling_ns: clock::is_virtual().then_some(config.poll_ns),
    };
    let coder = Coder::new(&config, config::session_start(clock::real_time_ns()))?;
    Ok(Engine::new(coder, ports, settings)?.run(input)?)
}
