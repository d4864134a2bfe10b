// SPDX-License-Identifier: Apache-2.0
//! A transparent TCP proxy that splits connections: `atoll-host pep`, as docs/contracts.md describes it.
//!
//! Both hosts of a connection see each other's addresses and ports. The packet rules and routes that bring their packets
//! here are settings of the machine, which its agent makes and undoes.
#![forbid(unsafe_code)]

mod config;
mod connection;
mod counters;
mod end;
mod error;
mod first_segment;
mod learned_servers;
mod multiplex;
mod pending;
mod proxy;
mod refusal;
mod request;
mod sockets;
mod transfer;

use atoll_job::Input;
use config::Config;
use error::PepError;
use std::error::Error;

/// `atoll-host pep`.
///
/// # Errors
/// A message for the user.
pub fn run() -> Result<(), Box<dyn Error>> {
    let mut input = Input::standard();
    let line = input
        .first_line()
        .map_err(PepError::of("read the configuration from standard input"))
        .map_err(PepError::boxed)?;
    Config::parse(&line)
        .and_then(|config| proxy::run(input, config))
        .map_err(PepError::boxed)
}
