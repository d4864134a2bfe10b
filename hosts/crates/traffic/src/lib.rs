// SPDX-License-Identifier: Apache-2.0
//! World servers, island channels, large transfer and pings.

/// `atoll-host serve`.
///
/// # Errors
/// A message for the user.
pub fn run_serve() -> Result<(), Box<dyn std::error::Error>> {
    
    Err("being written".into())
}

/// `atoll-host load`.
///
/// # Errors
/// A message for the user.
pub fn run_load() -> Result<(), Box<dyn std::error::Error>> {
    
    Err("being written".into())
}

/// `atoll-host transfer`.
///
/// # Errors
/// A message for the user.
pub fn run_transfer() -> Result<(), Box<dyn std::error::Error>> {
    
    Err("being written".into())
}

/// `atoll-host ping`.
///
/// # Errors
/// A message for the user.
pub fn run_ping() -> Result<(), Box<dyn std::error::Error>> {
    
    Err("being written".into())
}

/// `atoll-host flows`.
///
/// # Errors
/// A message for the user.
pub fn run_flows(args: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let _ = args;
    Err("being written".into())
}
