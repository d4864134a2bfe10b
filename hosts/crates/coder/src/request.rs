// SPDX-License-Identifier: Apache-2.0
//! Requests, one line of JSON each (docs/contracts.md, "coder").

use serde::Deserialize;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Request {
    /// End a measurement, begin the next one.
    Mark { id: u64 },
}
