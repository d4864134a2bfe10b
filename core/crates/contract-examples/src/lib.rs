// SPDX-License-Identifier: Apache-2.0
//! For tests: the examples of `tests/data/contract`, which the Python side's tests read too.
//!
//! Panics are a test's failures.
#![forbid(unsafe_code)]

use serde_json::Value;
use std::path::Path;

/// All lines of the file of `topic`.
///
/// # Panics
/// There is no such file, or a line of it is no JSON.
#[must_use]
pub fn lines(topic: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/data/contract");
    let text = std::fs::read_to_string(folder.join(format!("{topic}.jsonl"))).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The messages of `topic` that come from `sender`, of which there is at least one.
///
/// # Panics
/// As [`lines`], or there is no message of `sender`.
#[must_use]
pub fn examples(topic: &str, sender: &str) -> Vec<Value> {
    let messages: Vec<Value> = lines(topic)
        .into_iter()
        .filter(|line| line["from"] == sender)
        .map(|mut line| line["message"].take())
        .collect();
    assert!(
        !messages.is_empty(),
        "no example from {sender} in {topic}.jsonl"
    );
    messages
}
