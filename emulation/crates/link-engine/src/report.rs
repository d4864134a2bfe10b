// SPDX-License-Identifier: Apache-2.0
//! The fields of the lines on standard output, as in docs/contracts.md.

use atoll_frame_engine::{Doubtful, Lateness, Timing};
use atoll_link_model::{Count, Drops, Link};
use atoll_link_report::{ClassSums, Sojourn};
use atoll_measures::{Histogram, Since, sums};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

sums! {
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
        /// Arrivals that are read late can begin in time that was counted as idle.
        pub(crate) idle_ns: u64,
        pub(crate) lost_after_packets: u64,
        pub(crate) lost_after_bytes: u64,
        /// Of a link that has a queue of low priority.
        #[serde(flatten)]
        pub(crate) low_priority: Option<LowPriorityCounters>,
        #[serde(flatten)]
        pub(crate) doubtful: Doubtful,
    } and others {
        pub(crate) queue_bytes: u64,
        pub(crate) queue_max_bytes: u64,
        pub(crate) held_packets: u64,
        #[serde(flatten)]
        pub(crate) timing: Timing,
    }
}

sums! {
    /// The packets of low priority, which the other counters include, and their queue, which they do not.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
    pub(crate) struct LowPriorityCounters {
        low_priority_in_packets: u64,
        low_priority_in_bytes: u64,
        low_priority_sent_packets: u64,
        low_priority_sent_bytes: u64,
        dropped_low_priority_packets: u64,
        dropped_low_priority_bytes: u64,
    } and others {
        low_priority_queue_bytes: u64,
        low_priority_queue_max_bytes: u64,
    }
}

impl LowPriorityCounters {
    /// Since the start, with the maximum left 0; `None` if the link has no queue of low priority.
    pub(crate) fn of<P>(link: &mut Link<P>, now: u64) -> Option<Self> {
        let queue_bytes = link.low_priority_queue_bytes(now);
        let (counted, dropped) = (
            link.low_priority_totals()?,
            link.totals().dropped.low_priority,
        );
        Some(Self {
            low_priority_in_packets: counted.arrived.packets,
            low_priority_in_bytes: counted.arrived.bytes,
            low_priority_sent_packets: counted.sent.packets,
            low_priority_sent_bytes: counted.sent.bytes,
            dropped_low_priority_packets: dropped.packets,
            dropped_low_priority_bytes: dropped.bytes,
            low_priority_queue_bytes: queue_bytes,
            low_priority_queue_max_bytes: 0,
        })
    }

    /// The same with this maximum.
    pub(crate) fn with_queue_max(self, low_priority_queue_max_bytes: u64) -> Self {
        Self {
            low_priority_queue_max_bytes,
            ..self
        }
    }
}

/// The time that packets of low priority took to be sent.
#[derive(Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "keys of the line")]
pub(crate) struct LowPrioritySojourn {
    low_priority_sojourn_max_ns: u64,
    low_priority_sojourn_count: u64,
    low_priority_sojourn_sum_ns: u64,
    low_priority_sojourn_histogram: Histogram,
}

impl LowPrioritySojourn {
    pub(crate) fn new(sojourn: Histogram) -> Self {
        Self {
            low_priority_sojourn_max_ns: sojourn.max_ns(),
            low_priority_sojourn_count: sojourn.count(),
            low_priority_sojourn_sum_ns: sojourn.sum_ns(),
            low_priority_sojourn_histogram: sojourn,
        }
    }
}

/// The parts of `dropped_packets` and `dropped_bytes`, in the order of [`CAUSE_KEYS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DroppedByCause([Count; CAUSE_KEYS.len()]);

/// Names of the sums of each cause. `unsent`: left the link, but the interface would not take them, which is the engine's
/// failure and not the link's behaviour.
const CAUSE_KEYS: [[&str; 2]; 5] = [
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
            low_priority: _, // see `LowPriorityCounters`
            loss,
            aqm,
            blocked,
        } = *dropped;
        Self([queue, loss, aqm, blocked, unsent])
    }
}

impl Since for DroppedByCause {
    fn combine(&self, other: &Self, combine: fn(u64, u64) -> u64) -> Self {
        Self(self.0.combine(&other.0, combine))
    }
}

impl Serialize for DroppedByCause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2 * CAUSE_KEYS.len()))?;
        for ([packets, bytes], count) in CAUSE_KEYS.iter().zip(&self.0) {
            map.serialize_entry(packets, &count.packets)?;
            map.serialize_entry(bytes, &count.bytes)?;
        }
        map.end()
    }
}

/// One direction between two marks: sums of that time, gauges at its end.
#[derive(Debug, Serialize)]
pub(crate) struct DirectionMeasurement {
    #[serde(flatten)]
    pub(crate) counters: DirectionCounters,
    #[serde(flatten)]
    pub(crate) lateness: Lateness,
    #[serde(flatten)]
    pub(crate) sojourn: Sojourn,
    #[serde(flatten)]
    pub(crate) low_priority_sojourn: Option<LowPrioritySojourn>,
    pub(crate) scheduled_windows_over_rate: u64,
    pub(crate) overloaded: bool,
}

/// All classes of a delay box, and the packets without a class.
#[derive(Debug, Serialize)]
pub(crate) struct DelayBox<T> {
    /// By VLAN id.
    pub(crate) classes: BTreeMap<u16, T>,
    #[serde(flatten)]
    pub(crate) common: CommonCounters,
    pub(crate) overloaded: bool,
}

sums! {
    /// The packets of a delay box that no class counts, and those of all classes that the receive ring did not deliver as it
    /// should.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
    pub(crate) struct CommonCounters {
        pub(crate) unknown_vlan_packets: u64,
        pub(crate) oversize_packets: u64,
        #[serde(flatten)]
        pub(crate) doubtful: Doubtful,
    }
}

/// One class: sums and a gauge, and the maxima of an interval.
#[derive(Debug, Serialize)]
pub(crate) struct ClassCounters {
    #[serde(flatten)]
    pub(crate) sums: ClassSums,
    #[serde(flatten)]
    pub(crate) timing: Timing,
}

/// One class between two marks.
#[derive(Debug, Serialize)]
pub(crate) struct ClassMeasurement {
    #[serde(flatten)]
    pub(crate) counters: ClassCounters,
    #[serde(flatten)]
    pub(crate) lateness: Lateness,
}
