// SPDX-License-Identifier: Apache-2.0
//! A job's life ([`atoll_job`]) with the errors of this crate.

use crate::error::TrafficError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::Stdin;

pub use atoll_job::log_line;

/// Standard input.
pub type Input = atoll_job::Input<Stdin>;

/// The configuration in the first line of standard input, and the input after it.
///
/// # Errors
/// If the line is missing or no JSON, or if a field is missing, unknown or of the wrong type.
pub fn configuration<T: DeserializeOwned>() -> Result<(T, Input), TrafficError> {
    let mut input = Input::standard();
    let line = input
        .first_line()
        .map_err(|error| TrafficError::of("read the configuration from standard input", &error))?;
    Ok((parse(&line)?, input))
}

/// A configuration from its JSON.
///
/// # Errors
/// As of [`configuration`].
pub fn parse<T: DeserializeOwned>(line: &str) -> Result<T, TrafficError> {
    atoll_job::configuration(line).map_err(|error| TrafficError::Configuration(error.to_string()))
}

/// Print `message` as one line of JSON.
///
/// # Errors
/// If standard output is closed.
pub fn emit(message: &impl Serialize) -> Result<(), TrafficError> {
    atoll_job::print(message).map_err(|error| TrafficError::of("write to standard output", &error))
}
