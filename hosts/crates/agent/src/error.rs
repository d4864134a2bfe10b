// SPDX-License-Identifier: Apache-2.0
//! Errors of requests, each as one line for its sender.

use std::io;
use std::path::Path;

/// Why a request was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The line is no request.
    #[error(transparent)]
    NotUnderstood(#[from] atoll_job::NotUnderstood),
    /// The output of a tool, or the journal, is not of the shape that it has.
    #[error("unexpected JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A program could not be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program's name or path.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A file or namespace could not be used.
    #[error("{path}: {source}")]
    File {
        /// Which one.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// `ip`, `ethtool` or `nft` said no.
    #[error("{tool}: {message}")]
    Tool {
        /// The tool, with the line of its input that failed where it is known.
        tool: String,
        /// Its message, on one line.
        message: String,
    },
    /// The machine, or a job on it, is not what the request needs.
    #[error("{0}")]
    Machine(String),
    /// A system call failed that normally cannot.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl AgentError {
    /// The error of using `path`.
    pub(crate) fn file(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().display().to_string();
        move |source| Self::File { path, source }
    }
}

impl From<rustix::io::Errno> for AgentError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::System(errno.into())
    }
}
