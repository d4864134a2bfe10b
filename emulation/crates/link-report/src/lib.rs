// SPDX-License-Identifier: Apache-2.0
//! The lines that links and delay boxes say on standard output, whichever backend they are made of
//! (docs/contracts.md, "link", "delay" and "tc").
//!
//! The counters differ, since the kernel knows less than the engine: they are a parameter here.

use atoll_measures::{Histogram, sums};
use serde::Serialize;

/// A line: `type`, and what belongs to it. Instants are `CLOCK_REALTIME` in ns since 1970.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Line<Counters, Measurement> {
    /// It works.
    Ready,
    /// Sums since the start, maxima since the last of these.
    Counters {
        /// When they were read.
        t_ns: u64,
        /// One for both directions or all classes.
        #[serde(flatten)]
        counters: Counters,
    },
    /// Counters since the last of these.
    Mark {
        /// The request's.
        id: u64,
        /// The end of the measurement.
        t_ns: u64,
        /// One for both directions or all classes.
        #[serde(flatten)]
        measurement: Measurement,
    },
    /// Answer to a request of that name.
    Set(LinkAnswer),
    /// Answer to a request of that name.
    TraceStart(LinkAnswer),
    /// Counters since the last mark; the last line.
    Done {
        /// The end of the measurement.
        t_ns: u64,
        /// One for both directions or all classes.
        #[serde(flatten)]
        measurement: Measurement,
    },
}

/// Whether a request took effect, and when or why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LinkAnswer {
    /// The request's.
    pub id: u64,
    /// When.
    pub t_ns: u64,
    /// Whether it took effect.
    pub ok: bool,
    /// Why not, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl LinkAnswer {
    /// The answer to request `id`, given at `t_ns`.
    #[must_use]
    pub fn new(id: u64, t_ns: u64, result: Result<(), impl ToString>) -> Self {
        Self {
            id,
            t_ns,
            ok: result.is_ok(),
            error: result.err().map(|error| error.to_string()),
        }
    }
}

/// The times that packets spent in a queue since the last mark.
#[derive(Debug, Default, Serialize)]
pub struct Sojourn {
    /// The longest.
    pub sojourn_max_ns: u64,
    /// How many there are.
    pub sojourn_count: u64,
    /// All together.
    pub sojourn_sum_ns: u64,
    /// Their distribution.
    pub sojourn_histogram: Histogram,
}

impl From<Histogram> for Sojourn {
    fn from(sojourns: Histogram) -> Self {
        Self {
            sojourn_max_ns: sojourns.max_ns(),
            sojourn_count: sojourns.count(),
            sojourn_sum_ns: sojourns.sum_ns(),
            sojourn_histogram: sojourns,
        }
    }
}

sums! {
    /// One class of a delay box: sums, and a gauge.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
    pub struct ClassSums {
        /// Packets that came to the class.
        pub in_packets: u64,
        /// Their bytes.
        pub in_bytes: u64,
        /// Packets that left it.
        pub out_packets: u64,
        /// Their bytes.
        pub out_bytes: u64,
    } and others {
        /// Packets that it delays now.
        pub held_packets: u64,
    }
}

/// Both directions of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Directions<T> {
    /// From the world's side.
    pub to_island: T,
    /// From the island's side.
    pub to_world: T,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &Line<Directions<u64>, Directions<u64>>) -> String {
        serde_json::to_string(line).unwrap()
    }

    #[test]
    fn figures_stand_beside_the_type() {
        let line = Line::Mark {
            id: 7,
            t_ns: 1,
            measurement: Directions {
                to_island: 2,
                to_world: 3,
            },
        };
        assert_eq!(
            text(&line),
            r#"{"type":"mark","id":7,"t_ns":1,"to_island":2,"to_world":3}"#
        );
    }

    #[test]
    fn answers_name_their_request_and_say_why_only_when_refusing() {
        let done = Line::TraceStart(LinkAnswer::new(8, 5, Ok::<(), String>(())));
        assert_eq!(
            text(&done),
            r#"{"type":"trace-start","id":8,"t_ns":5,"ok":true}"#
        );
        let refused = Line::Set(LinkAnswer::new(9, 6, Err("no")));
        assert_eq!(
            text(&refused),
            r#"{"type":"set","id":9,"t_ns":6,"ok":false,"error":"no"}"#
        );
    }
}
