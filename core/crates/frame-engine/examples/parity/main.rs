// SPDX-License-Identifier: Apache-2.0
//! A job on the frame engine that emits frames it never received: after every few frames their exclusive or.
//!
//!     echo '{"ports":[{"interface":"a","mtu":1500},{"interface":"b","mtu":1600}],"group":4,"flush_ns":5000000,
//!            "polling_ns":2000000}' | parity
//!
//! A request `{"op":"group","frames":8}` changes how many frames a group has.

pub(crate) mod program;

use atoll_frame_engine::{Engine, Port, Settings};
use program::Parity;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// Where frames come from and where they and their parity go. The other way they are forwarded as they are.
    ports: [PortConfig; 2],
    group: usize,
    flush_ns: u64,
    polling_ns: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PortConfig {
    interface: String,
    mtu: u32,
}

/// Run the job.
pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut input = atoll_job::Input::standard();
    let config: Config = atoll_job::configuration(&input.first_line()?)?;
    let ports = config
        .ports
        .iter()
        .map(|port| Port::open(&port.interface, port.mtu))
        .collect::<Result<_, _>>()?;
    let settings = Settings {
        polling_ns: config.polling_ns,
        ..Settings::default()
    };
    let program = Parity::new(config.group, config.flush_ns);
    Ok(Engine::new(program, ports, settings)?.run(input)?)
}
