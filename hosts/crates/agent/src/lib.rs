// SPDX-License-Identifier: Apache-2.0
//! The host agent: starts, watches and stops every job on a host.

/// `atoll-host agent`.
///
/// # Errors
/// A message for the user.
pub fn run() -> Result<(), Box<dyn std::error::Error>> {
    
    Err("being written".into())
}
