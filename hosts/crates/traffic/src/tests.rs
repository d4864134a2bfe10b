// SPDX-License-Identifier: Apache-2.0
//! For tests: the examples of `tests/data/contract`, which the Python side's tests read too.

use atoll_contract_examples::examples;
use atoll_job::configuration as parse;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Debug;

/// Fields that a configuration of `atoll-host load` may lack.
pub const LOAD_OPTIONAL: &[&str] = &[
    "changes",
    "counts",
    "direction",
    "pace",
    "paced",
    "quiet",
    "silence_ns",
    "write_rate_bit_s",
];

/// The configurations among the examples of `topic`; each is refused once it has a field more, or one less of
/// the required ones.
pub fn configurations<T: DeserializeOwned + Debug>(topic: &str, optional: &[&str]) -> Vec<T> {
    for example in examples(topic, "keeper") {
        let mut more = example.clone();
        more["surprise"] = Value::Null;
        assert!(
            parse::<T>(&more.to_string()).is_err(),
            "an unknown field is taken: {more}"
        );
        for field in example
            .as_object()
            .unwrap()
            .keys()
            .filter(|field| !optional.contains(&field.as_str()))
        {
            let mut less = example.clone();
            less.as_object_mut().unwrap().remove(field);
            assert!(
                parse::<T>(&less.to_string()).is_err(),
                "not missed: {field}"
            );
        }
    }
    examples(topic, "keeper")
        .iter()
        .map(|example| parse(&example.to_string()).unwrap())
        .collect()
}

/// The messages of `sender` among the examples of `topic`.
pub fn contract_messages<T: DeserializeOwned>(topic: &str, sender: &str) -> Vec<T> {
    let read = |message| serde_json::from_value(message).unwrap();
    examples(topic, sender).into_iter().map(read).collect()
}

/// Asserts that `message` is, field for field, one of the examples that `sender` says.
pub fn assert_in_contract(topic: &str, sender: &str, message: &impl Serialize) {
    let message = serde_json::to_value(message).unwrap();
    let examples = examples(topic, sender);
    assert!(
        examples.contains(&message),
        "{message} is none of {examples:#?}"
    );
}
