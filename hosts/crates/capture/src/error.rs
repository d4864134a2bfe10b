// SPDX-License-Identifier: Apache-2.0
//! Why a capture ended early.

use std::error::Error;
use std::io;
use std::path::Path;

/// Why a capture ended early; the message is one line for people.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CaptureError {
    /// The configuration is wrong, or names an interface that this machine does not have.
    #[error("{0}")]
    Configuration(String),
    /// The complete records written before are kept.
    #[error("disk full: cannot write {0}")]
    DiskFull(String),
    /// Another reason why it could not go on.
    #[error("cannot {0}: {1}")]
    Cannot(String, io::Error),
}

impl CaptureError {
    /// The failure of `doing`, as in "listen on eth0".
    pub(crate) fn of(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Cannot(doing.into(), error)
    }

    /// The failure of writing `path`.
    pub(crate) fn of_writing(path: &Path, error: io::Error) -> Self {
        let full = [rustix::io::Errno::NOSPC, rustix::io::Errno::DQUOT]
            .map(|full| Some(full.raw_os_error()));
        if full.contains(&error.raw_os_error()) {
            Self::DiskFull(path.display().to_string())
        } else {
            Self::Cannot(format!("write {}", path.display()), error)
        }
    }

    /// As the one error type that `atoll-host` turns into exit codes: bad configuration is one of
    /// [`atoll_job::bad_configuration`].
    pub(crate) fn boxed(self) -> Box<dyn Error> {
        match self {
            Self::Configuration(message) => atoll_job::bad_configuration(message).into(),
            other => other.to_string().into(),
        }
    }
}
