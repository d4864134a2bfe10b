// SPDX-License-Identifier: Apache-2.0
//! For tests: the examples of `tests/data/contract`, which the Python side's tests read too.

use serde_json::Value;
use std::path::Path;

/// The messages of `topic` that come from `sender`; there is at least one.
pub(crate) fn examples(topic: &str, sender: &str) -> Vec<Value> {
    let messages: Vec<Value> = lines(topic)
        .into_iter()
        .filter(|line| line["from"] == sender)
        .map(|line| line["message"].clone())
        .collect();
    assert!(
        !messages.is_empty(),
        "no example from {sender} in {topic}.jsonl"
    );
    messages
}

/// All lines of `topic`.
pub(crate) fn lines(topic: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/data/contract");
    let text = std::fs::read_to_string(folder.join(format!("{topic}.jsonl"))).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}
