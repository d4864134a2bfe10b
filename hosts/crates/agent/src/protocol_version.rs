// SPDX-License-Identifier: Apache-2.0
//! Versions of the protocol, and the choice of the one that two sides have in common.
//!
//! A *major* version is one language: its messages mean the same in all its minor versions, and unknown fields and
//! events are ignored. A *minor* version adds to it. Each side sends the highest minor version of each major version that
//! it supports; both then keep to the highest major that both have, and in it to the lower minor.
//! The examples in `tests/data/contract/agent-versions.jsonl` hold this and the other side's rule to the same outcomes.

/// Major and minor.
pub type Version = (u32, u32);

/// The versions that this program supports, the best last.
pub const SPEAKS: [Version; 1] = [(2, 2)];

/// The version that two sides have in common; none: they cannot talk.
pub fn agreed(ours: &[Version], theirs: &[Version]) -> Option<Version> {
    ours.iter()
        .flat_map(|our| theirs.iter().map(move |their| (our, their)))
        .filter(|(our, their)| our.0 == their.0)
        .map(|(our, their)| (our.0, our.1.min(their.1)))
        .max()
}

/// As people write them: `1.1`, `1.0 and 2.3`.
pub fn words(versions: &[Version]) -> String {
    let written: Vec<String> = versions
        .iter()
        .map(|(major, minor)| format!("{major}.{minor}"))
        .collect();
    if written.is_empty() {
        "no version".to_owned()
    } else {
        written.join(" and ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize)]
    struct Example {
        keeper: Vec<Version>,
        agent: Vec<Version>,
        agreed: Option<Version>,
    }

    #[test]
    fn both_sides_come_to_the_contracts_outcomes() {
        let examples = include_str!("../../../../tests/data/contract/agent-versions.jsonl");
        let mut seen = 0;
        for line in examples.lines() {
            let example: Example = serde_json::from_str(line).unwrap();
            assert_eq!(
                agreed(&example.agent, &example.keeper),
                example.agreed,
                "{line}"
            );
            seen += 1;
        }
        assert!(seen >= 6);
        assert_eq!(words(&SPEAKS), "2.2");
    }
}
