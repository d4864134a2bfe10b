// SPDX-License-Identifier: Apache-2.0
//! Common parts of all jobs: configuration from the first line of standard input, messages as JSON lines
//! on standard output.

use crate::error::TrafficError;
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Write};

/// The configuration in the first line of standard input.
///
/// The line is read without a buffer of the standard library, so that whether more input or its end follows is
/// the event loop's to see. What already came behind the line is dropped: these jobs take no orders but to stop.
///
/// # Errors
/// If the line is missing, is no JSON, lacks a field, or has one that is unknown or of the wrong type.
pub fn configuration<T: DeserializeOwned>() -> Result<T, TrafficError> {
    let mut input = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    while !input.contains(&b'\n') {
        match rustix::io::read(io::stdin(), &mut buffer) {
            Ok(0) => break,
            Ok(count) => input.extend_from_slice(&buffer[..count]),
            Err(Errno::INTR) => {}
            Err(error) => {
                return Err(TrafficError::of(
                    "read the configuration from standard input",
                    &error,
                ));
            }
        }
    }
    parse(
        input
            .split(|&byte| byte == b'\n')
            .next()
            .unwrap_or_default(),
    )
}

/// A configuration from its JSON.
///
/// # Errors
/// As of [`configuration`].
pub fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, TrafficError> {
    if line.trim_ascii().is_empty() {
        return Err(TrafficError::Configuration(
            "no configuration: give it as one line of JSON on standard input".into(),
        ));
    }
    serde_json::from_slice(line)
        .map_err(|error| TrafficError::Configuration(format!("configuration: {error}")))
}

/// Print `message` as one line of JSON.
///
/// # Errors
/// If standard output is closed.
pub fn emit(message: &impl Serialize) -> Result<(), TrafficError> {
    let mut line = serde_json::to_vec(message).map_err(io::Error::from)?;
    line.push(b'\n');
    let mut output = io::stdout().lock();
    output
        .write_all(&line)
        .and_then(|()| output.flush())
        .map_err(|error| TrafficError::of("write to standard output", &error))
}

/// Write a line for people to standard error. A closed standard error is ignored.
pub fn log_line(message: &str) {
    let _ = writeln!(io::stderr(), "atoll-host: {message}");
}
