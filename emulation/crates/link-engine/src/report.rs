// SPDX-License-Identifier: Apache-2.0
//! Lines on standard output, field by field as in docs/contracts.md.

use link_model::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;

/// Largest duration of a bucket in ns, and how many it holds.
type Buckets = Vec<(u64, u64)>;

/// A line: `type`, and what belongs to it.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum Line<Counters, Measurement> {
    Ready,
    Counters {
        t_ns: u64,
        #[serde(flatten)]
        counters: Counters,
    },
    Mark {
        id: u64,
        t_ns: u64,
        #[serde(flatten)]
        measurement: Measurement,
    },
    Done {
        t_ns: u64,
        #[serde(flatten)]
        measurement: Measurement,
    },
}

/// Both directions of a link.
#[derive(Debug, Serialize)]
pub(crate) struct Directions<T> {
    pub(crate) to_island: T,
    pub(crate) to_world: T,
}

/// One direction: sums and gauges, and the maxima of an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct DirectionCounters {
    pub(crate) in_packets: u64,
    pub(crate) in_bytes: u64,
    pub(crate) out_packets: u64,
    pub(crate) out_bytes: u64,
    pub(crate) dropped_packets: u64,
    pub(crate) dropped_bytes: u64,
    pub(crate) oversize_packets: u64,
    pub(crate) queue_bytes: u64,
    pub(crate) queue_max_bytes: u64,
    pub(crate) held_packets: u64,
    pub(crate) idle_ns: u64,
    pub(crate) lateness_max_ns: u64,
}

/// One direction between two marks: sums of that time, gauges at its end.
#[derive(Debug, Serialize)]
pub(crate) struct DirectionMeasurement {
    #[serde(flatten)]
    pub(crate) counters: DirectionCounters,
    #[serde(flatten)]
    pub(crate) lateness: Lateness,
    pub(crate) sojourn_max_ns: u64,
    pub(crate) sojourn_histogram: Buckets,
    pub(crate) scheduled_windows_over_rate: u64,
    pub(crate) overloaded: bool,
}

/// Lateness of all departures between two marks, its maximum excepted.
#[derive(Debug, Serialize)]
pub(crate) struct Lateness {
    lateness_p99_ns: u64,
    lateness_histogram: Buckets,
}

/// All classes of a delay box, and what belonged to none.
#[derive(Debug, Serialize)]
pub(crate) struct DelayBox<T> {
    /// By VLAN id.
    pub(crate) classes: BTreeMap<u16, T>,
    pub(crate) unknown_vlan_packets: u64,
    pub(crate) oversize_packets: u64,
    pub(crate) overloaded: bool,
}

/// One class: sums and a gauge, and the maximum of an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ClassCounters {
    pub(crate) in_packets: u64,
    pub(crate) in_bytes: u64,
    pub(crate) out_packets: u64,
    pub(crate) out_bytes: u64,
    pub(crate) held_packets: u64,
    pub(crate) lateness_max_ns: u64,
}

/// One class between two marks.
#[derive(Debug, Serialize)]
pub(crate) struct ClassMeasurement {
    #[serde(flatten)]
    pub(crate) counters: ClassCounters,
    #[serde(flatten)]
    pub(crate) lateness: Lateness,
}

impl From<&Histogram> for Lateness {
    fn from(histogram: &Histogram) -> Self {
        Self {
            lateness_p99_ns: histogram.quantile_ns(990),
            lateness_histogram: buckets(histogram),
        }
    }
}

pub(crate) fn buckets(histogram: &Histogram) -> Buckets {
    histogram.non_empty().collect()
}
