// SPDX-License-Identifier: Apache-2.0
//! Requests to a running program, one line of JSON each (docs/contracts.md).

use atoll_link_model::{LinkChange, LossSettings};
use serde::Deserialize;

/// A line.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request {
    /// End a measurement, begin the next one.
    Mark {
        /// Repeated in the answer.
        id: u64,
    },
    /// Change settings of a direction or class.
    Set(Change),
    /// Time 0 of the traces is now.
    TraceStart {
        /// Repeated in the answer.
        id: u64,
    },
}

/// Settings to change, and where; absent ones stay.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    /// Repeated in the answer.
    pub(crate) id: u64,
    /// Of a link.
    pub(crate) direction: Option<Towards>,
    /// Of a delay box's class.
    pub(crate) vlan: Option<u16>,
    rate_bit_s: Option<u64>,
    delay_ns: Option<u64>,
    queue_bytes: Option<u64>,
    queue_packets: Option<u64>,
    loss: Option<LossSettings>,
}

impl Change {
    pub(crate) fn settings(&self) -> LinkChange {
        LinkChange {
            rate_bit_s: self.rate_bit_s,
            delay_ns: self.delay_ns,
            queue_bytes: self.queue_bytes,
            queue_packets: self.queue_packets,
            loss: self.loss.clone(),
        }
    }
}

/// A direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum Towards {
    #[serde(rename = "to_island")]
    Island,
    #[serde(rename = "to_world")]
    World,
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_link_model::{LossKind, LossPlace};

    #[test]
    fn a_change_sets_what_it_names() {
        let line = r#"{"op":"set","id":3,"direction":"to_world","rate_bit_s":8000000,
            "loss":{"kind":"bernoulli","probability":0.5}}"#;
        let Ok(Request::Set(change)) = atoll_job::request(line.as_bytes()) else {
            panic!("not understood");
        };
        assert_eq!((change.id, change.direction), (3, Some(Towards::World)));
        let expected = LinkChange {
            rate_bit_s: Some(8_000_000),
            loss: Some(LossSettings {
                kind: LossKind::Bernoulli { probability: 0.5 },
                place: LossPlace::After,
            }),
            ..LinkChange::default()
        };
        assert_eq!(change.settings(), expected);
    }
}
