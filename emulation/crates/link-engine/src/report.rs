// SPDX-License-Identifier: Apache-2.0
//! The fields of the lines on standard output, as in docs/contracts.md.

use atoll_frame_engine::{Doubtful, Lateness, Timing};
use atoll_link_model::{Count, Drops};
use atoll_measures::{Histogram, Since, sums};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// One direction: sums and gauges, and the maxima of an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct DirectionCounters {
    pub(crate) in_packets: u64,
    pub(crate) in_bytes: u64,
    pub(crate) out_packets: u64,
    pub(crate) out_bytes: u64,
    pub(crate) dropped_packets: u64,
    pub(crate) dropped_bytes: u64,
    #[serde(flatten)]
    pub(crate) dropped: DroppedByCause,
    pub(crate) oversize_packets: u64,
    pub(crate) queue_bytes: u64,
    pub(crate) queue_max_bytes: u64,
    pub(crate) held_packets: u64,
    pub(crate) idle_ns: u64,
    pub(crate) lost_after_packets: u64,
    pub(crate) lost_after_bytes: u64,
    #[serde(flatten)]
    pub(crate) timing: Timing,
    #[serde(flatten)]
    pub(crate) doubtful: Doubtful,
}

/// The parts of `dropped_packets` and `dropped_bytes`, in the order of [`CAUSES`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DroppedByCause([Count; CAUSES.len()]);

/// Names of the sums of each cause. `unsent`: left the link, but the interface would not take them, which is the engine's
/// failure and not the link's behaviour.
const CAUSES: [[&str; 2]; 5] = [
    ["dropped_queue_packets", "dropped_queue_bytes"],
    ["dropped_loss_packets", "dropped_loss_bytes"],
    ["dropped_aqm_packets", "dropped_aqm_bytes"],
    ["dropped_blocked_packets", "dropped_blocked_bytes"],
    ["dropped_unsent_packets", "dropped_unsent_bytes"],
];

impl DroppedByCause {
    pub(crate) fn new(dropped: &Drops, unsent: Count) -> Self {
        let Drops {
            queue,
            loss,
            aqm,
            blocked,
        } = *dropped;
        Self([queue, loss, aqm, blocked, unsent])
    }
}

impl Since for DroppedByCause {
    fn since(&self, before: &Self) -> Self {
        Self(self.0.since(&before.0))
    }
}

impl Serialize for DroppedByCause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2 * CAUSES.len()))?;
        for ([packets, bytes], count) in CAUSES.iter().zip(&self.0) {
            map.serialize_entry(packets, &count.packets)?;
            map.serialize_entry(bytes, &count.bytes)?;
        }
        map.end()
    }
}

// Arrivals that are read late can begin in time that was counted as idle.
sums!(DirectionCounters {
    in_packets,
    in_bytes,
    out_packets,
    out_bytes,
    dropped_packets,
    dropped_bytes,
    dropped,
    oversize_packets,
    idle_ns,
    lost_after_packets,
    lost_after_bytes,
    doubtful,
});

/// One direction between two marks: sums of that time, gauges at its end.
#[derive(Debug, Serialize)]
pub(crate) struct DirectionMeasurement {
    #[serde(flatten)]
    pub(crate) counters: DirectionCounters,
    #[serde(flatten)]
    pub(crate) lateness: Lateness,
    pub(crate) sojourn_max_ns: u64,
    pub(crate) sojourn_count: u64,
    pub(crate) sojourn_sum_ns: u64,
    pub(crate) sojourn_histogram: Histogram,
    pub(crate) scheduled_windows_over_rate: u64,
    pub(crate) overloaded: bool,
}

/// All classes of a delay box, and the packets without a class.
#[derive(Debug, Serialize)]
pub(crate) struct DelayBox<T> {
    /// By VLAN id.
    pub(crate) classes: BTreeMap<u16, T>,
    pub(crate) unknown_vlan_packets: u64,
    pub(crate) oversize_packets: u64,
    #[serde(flatten)]
    pub(crate) doubtful: Doubtful,
    pub(crate) overloaded: bool,
}

/// One class: sums and a gauge, and the maxima of an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ClassCounters {
    pub(crate) in_packets: u64,
    pub(crate) in_bytes: u64,
    pub(crate) out_packets: u64,
    pub(crate) out_bytes: u64,
    pub(crate) held_packets: u64,
    #[serde(flatten)]
    pub(crate) timing: Timing,
}

sums!(ClassCounters {
    in_packets,
    in_bytes,
    out_packets,
    out_bytes
});

/// One class between two marks.
#[derive(Debug, Serialize)]
pub(crate) struct ClassMeasurement {
    #[serde(flatten)]
    pub(crate) counters: ClassCounters,
    #[serde(flatten)]
    pub(crate) lateness: Lateness,
}
