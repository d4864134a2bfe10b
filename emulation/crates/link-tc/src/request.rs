// SPDX-License-Identifier: Apache-2.0
//! Requests to a running program, one line of JSON each (docs/contracts.md).

use crate::config::{Directions, Expected};
use serde::Deserialize;

/// Requests to a running link.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub(crate) enum Request {
    /// End a measurement, begin the next one.
    Mark { id: u64 },
    /// Change the link.
    Set(Change),
    /// Begin a trace; only the engine has any.
    TraceStart { id: u64 },
}

/// Settings of a running link.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    pub(crate) id: u64,
    /// Lines for `tc -batch`.
    pub(crate) tc: Vec<String>,
    /// What `tc -r -j qdisc show` must then show of the disciplines that changed.
    pub(crate) expect: Vec<Expected>,
    /// Where the counters are from then on.
    pub(crate) link: Box<Directions>,
}
