// SPDX-License-Identifier: Apache-2.0
//! The fields of the lines on standard output, as in docs/contracts.md.

use atoll_link_model::{Count, Drops, Histogram};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// Largest duration of a bucket in ns, and how many it holds.
type Buckets = Vec<(u64, u64)>;

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

/// When packets came and left: sums, and maxima of an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Timing {
    pub(crate) lateness_max_ns: u64,
    /// Taken to have arrived later than their stamps say.
    pub(crate) clamped_packets: u64,
    pub(crate) clamped_max_ns: u64,
    pub(crate) stall_count: u64,
    pub(crate) stall_ns: u64,
}

/// Frames that the receive ring did not deliver as it should: sums.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_field_names, reason = "the contract's names")]
pub(crate) struct Doubtful {
    /// The ring was full.
    pub(crate) unread_packets: u64,
    /// Their stamps fit no clock.
    pub(crate) unstamped_packets: u64,
    /// Their senders left the checksum to hardware.
    pub(crate) no_checksum_packets: u64,
}

impl Doubtful {
    /// Sums since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            unread_packets: self.unread_packets - before.unread_packets,
            unstamped_packets: self.unstamped_packets - before.unstamped_packets,
            no_checksum_packets: self.no_checksum_packets - before.no_checksum_packets,
        }
    }
}

/// What `dropped_packets` and `dropped_bytes` are the sums of, in the order of [`CAUSES`].
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

    fn since(&self, before: &Self) -> Self {
        Self(std::array::from_fn(|cause| Count {
            packets: self.0[cause].packets - before.0[cause].packets,
            bytes: self.0[cause].bytes - before.0[cause].bytes,
        }))
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

impl DirectionCounters {
    /// Sums since `before`; gauges as they are, maxima 0, no timing.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            in_packets: self.in_packets - before.in_packets,
            in_bytes: self.in_bytes - before.in_bytes,
            out_packets: self.out_packets - before.out_packets,
            out_bytes: self.out_bytes - before.out_bytes,
            dropped_packets: self.dropped_packets - before.dropped_packets,
            dropped_bytes: self.dropped_bytes - before.dropped_bytes,
            dropped: self.dropped.since(&before.dropped),
            oversize_packets: self.oversize_packets - before.oversize_packets,
            queue_bytes: self.queue_bytes,
            queue_max_bytes: 0,
            held_packets: self.held_packets,
            // Arrivals that are read late can begin in time that was counted as idle.
            idle_ns: self.idle_ns.saturating_sub(before.idle_ns),
            lost_after_packets: self.lost_after_packets - before.lost_after_packets,
            lost_after_bytes: self.lost_after_bytes - before.lost_after_bytes,
            timing: Timing::default(),
            doubtful: self.doubtful.since(&before.doubtful),
        }
    }
}

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
