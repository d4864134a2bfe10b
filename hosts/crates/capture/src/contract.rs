// SPDX-License-Identifier: Apache-2.0
//! For tests: the examples of `tests/data/contract/capture.jsonl`, which the Python side's tests read too.

use serde_json::Value;

/// The messages that come from `sender`, of which there is at least one.
pub(crate) fn examples(sender: &str) -> Vec<Value> {
    let found: Vec<Value> = include_str!("../../../../tests/data/contract/capture.jsonl")
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["from"] == sender)
        .map(|line| line["message"].clone())
        .collect();
    assert!(!found.is_empty(), "no example from {sender}");
    found
}
