// SPDX-License-Identifier: Apache-2.0
//! Errors of requests, each as one line for its sender.

use std::io;

/// Why a request was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The line is no request.
    #[error(transparent)]
    NotUnderstood(#[from] atoll_job::NotUnderstood),
    /// The output of a tool, or the journal, is not of the shape that it has.
    #[error("unexpected JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A job of that name is still running.
    #[error("job {0:?} is already running")]
    JobRunning(String),
    /// No such job, or it has ended.
    #[error("no job {0:?} is running")]
    NoJob(String),
    /// The job's input pipe is full and so is the agent's buffer for it.
    #[error("job {job:?} does not read its input ({pending} bytes wait)")]
    InputBlocked {
        /// Its name.
        job: String,
        /// Bytes not yet taken.
        pending: usize,
    },
    /// The signal's name is none the agent sends.
    #[error("unknown signal {0:?}; known: TERM, INT, HUP, KILL, USR1, USR2")]
    Signal(String),
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
    /// The machine is not what the settings describe.
    #[error("{0}")]
    Machine(String),
    /// A sysctl holds something else after it was written.
    #[error("sysctl {name}: wrote {wanted:?}, reads {held:?}")]
    SysctlNotTaken {
        /// Its name with dots.
        name: String,
        /// The value written.
        wanted: String,
        /// The value read back.
        held: String,
    },
    /// A system call failed that normally cannot.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl AgentError {
    /// The error of using `path`.
    pub(crate) fn file(path: &str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

impl From<rustix::io::Errno> for AgentError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::System(errno.into())
    }
}
