// SPDX-License-Identifier: Apache-2.0
//! Why a job ended early.

use std::error::Error;
use std::io;

/// Why a job ended early; the message is one line for people.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// The configuration is wrong, or needs something that this machine does not have.
    #[error("{0}")]
    Configuration(String),
    /// The configuration is valid, but the job failed.
    #[error("{0}")]
    Runtime(String),
}

impl TrafficError {
    /// The failure of `doing` (as in "listen on 10.0.0.1:80") with the operating system's reason.
    pub fn of(doing: &str, error: &impl Error) -> Self {
        Self::Runtime(format!("cannot {doing}: {error}"))
    }

    /// As the one error type that `atoll-host` turns into exit codes: bad configuration is one of
    /// [`atoll_job::bad_configuration`].
    #[must_use]
    pub fn boxed(self) -> Box<dyn Error> {
        match self {
            Self::Configuration(message) => atoll_job::bad_configuration(message).into(),
            Self::Runtime(message) => message.into(),
        }
    }
}

impl From<io::Error> for TrafficError {
    /// For the system calls of the event loop and of standard output, which have nothing to name.
    fn from(error: io::Error) -> Self {
        Self::Runtime(error.to_string())
    }
}

impl From<rustix::io::Errno> for TrafficError {
    fn from(error: rustix::io::Errno) -> Self {
        io::Error::from(error).into()
    }
}
