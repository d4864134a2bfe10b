// SPDX-License-Identifier: Apache-2.0
//! Captures to fixed-size packet records.

/// `atoll-host pcap`.
///
/// # Errors
/// A message for the user.
pub fn run(args: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let _ = args;
    Err("being written".into())
}
