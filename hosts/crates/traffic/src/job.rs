// SPDX-License-Identifier: Apache-2.0
//! A job's life ([`atoll_job`]) with the errors of this crate.

use crate::error::TrafficError;
use atoll_job::Input;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use atoll_job::log_line;

/// The configuration in the first line of standard input. Input that arrived with it is dropped: these jobs take no
/// requests.
///
/// # Errors
/// If the line is missing or no JSON, or if a field is missing, unknown or of the wrong type.
pub fn configuration<T: DeserializeOwned>() -> Result<T, TrafficError> {
    let line = Input::standard()
        .first_line()
        .map_err(|error| TrafficError::of("read the configuration from standard input", &error))?;
    parse(&line)
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
