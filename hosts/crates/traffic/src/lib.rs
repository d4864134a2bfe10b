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
mod upload;
mod writes;

pub use flows::{FlowsArguments, flows};
use job::{Input, failed};
pub use load::load;
pub use ping::ping;
pub use probe::probe;
pub use serve::serve;
use std::error::Error;
use std::io;
pub use transfer::transfer;
pub use udp::udp;

/// Run a job with the configuration from the first line of standard input.
///
/// # Errors
/// A message for the user.
pub fn run<C: serde::de::DeserializeOwned>(
    job: impl FnOnce(&C, Input) -> io::Result<()>,
) -> Result<(), Box<dyn Error>> {
    let mut input = Input::standard();
    let line = input
        .first_line()
        .map_err(failed("read the configuration from standard input"))?;
    Ok(job(&atoll_job::configuration(&line)?, input)?)
}
