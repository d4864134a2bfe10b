// SPDX-License-Identifier: Apache-2.0
//! Configurations as JSON, and errors as lines for people, which end a job with exit code 2 or 1.

use serde::de::DeserializeOwned;
use std::error::Error;
use std::fmt::Display;
use std::io::{self, ErrorKind};

/// Parse a configuration.
///
/// # Errors
/// That of a [`bad_configuration`]: `line` is empty, as the input ended first, or no JSON, or a field is missing, unknown or
/// of the wrong type.
pub fn configuration<T: DeserializeOwned>(line: &str) -> io::Result<T> {
    if line.trim().is_empty() {
        let expected = "expected one line of JSON";
        let message = format!("no configuration on standard input: {expected}");
        return Err(bad_configuration(message));
    }
    serde_json::from_str(line).map_err(wrong_setting)
}

/// The error of a configuration with a wrong setting; `message` begins with its name.
#[must_use]
pub fn wrong_setting(message: impl Display) -> io::Error {
    bad_configuration(format!("configuration: {message}"))
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

/// For `map_err`: the failure of `doing`, as in "listen on 10.0.0.1:80", with its reason.
pub fn failed<E: Display>(doing: impl Display) -> impl FnOnce(E) -> io::Error {
    move |error| io::Error::other(format!("cannot {doing}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_without_configuration_is_a_bad_one() {
        for line in ["", " \n", "{", "7.5"] {
            let error = configuration::<u32>(line).unwrap_err();
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
