// SPDX-License-Identifier: Apache-2.0
//! Lines on standard output: those of the link engine, without the figures that the kernel does not have
//! (docs/contracts.md, "tc").

use crate::error::TcError;
use crate::rtnetlink::Statistics;
use atoll_link_report::{ClassSums, Directions, Line, Sojourn};
use atoll_measures::{Histogram, sums};
use serde::Serialize;
use std::collections::BTreeMap;

pub(crate) const ENGINE_ONLY: &str =
    "a link of the tc backend follows no trace; use --backend engine";

/// The counters of a box.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Figures {
    Link(Box<Directions<DirectionFigures>>),
    Delay(DelayFigures),
}

/// The counters of a box since the last mark.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Measurement {
    Link(Box<Directions<MeasuredDirection>>),
    Delay(DelayFigures),
}

/// One direction since the last mark, with how long its queue was by the looks at it.
#[derive(Debug, Default, Serialize)]
pub(crate) struct MeasuredDirection {
    #[serde(flatten)]
    figures: DirectionFigures,
    #[serde(flatten)]
    sojourn: Sojourn,
}

impl MeasuredDirection {
    pub(crate) fn new(figures: DirectionFigures, sojourns: Histogram) -> Self {
        Self {
            figures,
            sojourn: sojourns.into(),
        }
    }
}

sums! {
    /// One direction: sums, and gauges of now.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
    pub(crate) struct DirectionFigures {
        pub(crate) in_packets: u64,
        pub(crate) in_bytes: u64,
        pub(crate) out_packets: u64,
        pub(crate) out_bytes: u64,
        pub(crate) dropped_packets: u64,
        pub(crate) dropped_bytes: u64,
        pub(crate) dropped_queue_packets: u64,
        /// Unknown, as are those of losses, where packets are lost before the queue, and where there are two queues: the
        /// kernel counts both together.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) dropped_queue_bytes: Option<u64>,
        pub(crate) dropped_loss_packets: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) dropped_loss_bytes: Option<u64>,
        pub(crate) lost_after_packets: u64,
        pub(crate) lost_after_bytes: u64,
        /// Of a link that has a queue of low priority.
        #[serde(flatten)]
        pub(crate) low_priority: Option<LowPriorityFigures>,
    } and others {
        pub(crate) queue_bytes: u64,
        pub(crate) queue_max_bytes: u64,
        pub(crate) held_packets: u64,
        /// The delay's netem was full since the last mark, which is to be impossible.
        pub(crate) overloaded: bool,
    }
}

sums! {
    /// The packets of low priority, which the other sums include, and their queue, which the other gauges do not.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
    pub(crate) struct LowPriorityFigures {
        pub(crate) low_priority_in_packets: u64,
        pub(crate) low_priority_sent_packets: u64,
        pub(crate) low_priority_sent_bytes: u64,
        pub(crate) dropped_low_priority_packets: u64,
    } and others {
        pub(crate) low_priority_queue_bytes: u64,
        pub(crate) low_priority_queue_max_bytes: u64,
    }
}

impl LowPriorityFigures {
    pub(crate) fn of(counted: &Statistics, queue_max_bytes: u64) -> Self {
        Self {
            low_priority_in_packets: counted.packets + counted.backlog_packets + counted.drops,
            low_priority_sent_packets: counted.packets,
            low_priority_sent_bytes: counted.bytes,
            dropped_low_priority_packets: counted.drops,
            low_priority_queue_bytes: counted.backlog_bytes,
            low_priority_queue_max_bytes: queue_max_bytes,
        }
    }
}

/// A delay box.
#[derive(Debug, Serialize)]
pub(crate) struct DelayFigures {
    /// By VLAN id.
    pub(crate) classes: BTreeMap<u16, ClassSums>,
    pub(crate) unknown_vlan_packets: u64,
    pub(crate) overloaded: bool,
}

/// The sums of a class by the statistics of its qdisc.
pub(crate) fn class_sums(counted: &Statistics) -> ClassSums {
    ClassSums {
        in_packets: counted.packets + counted.backlog_packets + counted.drops,
        in_bytes: counted.bytes + counted.backlog_bytes,
        out_packets: counted.packets,
        out_bytes: counted.bytes,
        held_packets: counted.backlog_packets,
    }
}

/// Print a line.
pub(crate) fn print(line: &Line<Figures, Measurement>) -> Result<(), TcError> {
    Ok(atoll_job::print(line)?)
}
