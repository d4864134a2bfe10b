// SPDX-License-Identifier: Apache-2.0
//! A transparent TCP proxy that splits connections: `atoll-host pep`, as docs/contracts.md describes it.
//!
//! Both hosts of a connection see each other's addresses and ports. The packet rules and routes that bring their packets
//! here are settings of the machine, which its agent makes and undoes.
#![forbid(unsafe_code)]

mod config;
mod connection;
mod end;
mod first_segment;
mod messages;
mod multiplex;
mod pending;
mod proxy;
mod sockets;
mod transfer;

use atoll_job::{Input, failed};
use config::Config;
use std::error::Error;

/// `atoll-host pep`.
///
/// # Errors
/// A message for the user.
pub fn run() -> Result<(), Box<dyn Error>> {
    let mut input = Input::standard();
    let line = input
        .first_line()
        .map_err(failed("read the configuration from standard input"))?;
    Ok(proxy::run(input, Config::parse(&line)?)?)
}
