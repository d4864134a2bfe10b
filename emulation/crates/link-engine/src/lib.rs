// SPDX-License-Identifier: Apache-2.0
//! Runs link-model on packet sockets: the link and delay programs.

/// `atoll-host link`: reads its configuration from the first line of standard input.
///
/// # Errors
/// A message for the user when the configuration or the machine does not allow the link.
pub fn run_link() -> Result<(), Box<dyn std::error::Error>> {
    Err("the link is being written".into())
}

/// `atoll-host delay`: reads its configuration from the first line of standard input.
///
/// # Errors
/// A message for the user when the configuration or the machine does not allow the delay box.
pub fn run_delay() -> Result<(), Box<dyn std::error::Error>> {
    Err("the delay box is being written".into())
}
