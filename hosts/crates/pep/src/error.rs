// SPDX-License-Identifier: Apache-2.0
//! Why the proxy ended early.

use std::error::Error;
use std::io;

/// Why the proxy ended early; the message is one line for people.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PepError {
    /// The configuration is wrong, or needs something that this machine does not have.
    #[error("{0}")]
    Configuration(String),
    /// The kernel refused something.
    #[error("cannot {doing}: {error}")]
    System {
        /// As in "listen on 127.0.0.1:5001".
        doing: String,
        /// The reason.
        error: io::Error,
    },
}

impl PepError {
    /// For `map_err`: the failure of `doing`.
    pub(crate) fn of<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        let doing = doing.into();
        move |error| Self::System {
            doing,
            error: error.into(),
        }
    }

    /// As the one error type that `atoll-host` turns into exit codes.
    pub(crate) fn boxed(self) -> Box<dyn Error> {
        match self {
            Self::Configuration(message) => atoll_job::bad_configuration(message).into(),
            Self::System { .. } => self.into(),
        }
    }
}
