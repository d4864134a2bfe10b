// SPDX-License-Identifier: Apache-2.0
//! Requests to a running program, one line of JSON each (docs/contracts.md).

use serde::Deserialize;

/// Requests to a running link.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub(crate) enum Request {
    /// End a measurement, begin the next one.
    Mark { id: u64 },
    /// Change the link; only the engine can.
    Set { id: u64 },
    /// Begin a trace; only the engine has any.
    TraceStart { id: u64 },
}
