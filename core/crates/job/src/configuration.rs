// SPDX-License-Identifier: Apache-2.0
//! Configurations as JSON, and the form in which errors of them reach the exit code.

use serde::de::DeserializeOwned;
use std::error::Error;
use std::io::{self, ErrorKind};

/// A first line that is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// The input ended first, or the line is empty.
    #[error("no configuration on standard input: expected one line of JSON")]
    Missing,
    /// Not JSON, or a field is missing, unknown or of the wrong type.
    #[error("configuration: {0}")]
    Json(#[from] serde_json::Error),
}

/// The form in which [`is_bad_configuration`] recognises it.
impl From<ConfigurationError> for io::Error {
    fn from(error: ConfigurationError) -> Self {
        bad_configuration(error)
    }
}

/// Parse a configuration.
///
/// # Errors
/// As of [`ConfigurationError`].
pub fn configuration<T: DeserializeOwned>(line: &str) -> Result<T, ConfigurationError> {
    if line.trim().is_empty() {
        return Err(ConfigurationError::Missing);
    }
    Ok(serde_json::from_str(line)?)
}

/// An error for which the process ends with exit code 2.
#[must_use]
pub fn bad_configuration(error: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, error)
}

/// Whether `error` is one of [`bad_configuration`]. EINVAL from the kernel has the same kind, but also an error number.
#[must_use]
pub fn is_bad_configuration(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| {
        error.kind() == ErrorKind::InvalidInput && error.raw_os_error().is_none()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_without_configuration_is_a_bad_one() {
        for line in ["", " \n", "{", "7.5"] {
            let error: io::Error = configuration::<u32>(line).unwrap_err().into();
            assert!(is_bad_configuration(&error), "{line}");
        }
        assert_eq!(configuration::<u32>("7").unwrap(), 7);
    }

    #[test]
    fn an_invalid_argument_to_the_kernel_is_no_bad_configuration() {
        let error = io::Error::from(rustix::io::Errno::INVAL);
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(!is_bad_configuration(&error));
    }
}
