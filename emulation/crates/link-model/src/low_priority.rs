// SPDX-License-Identifier: Apache-2.0
//! The queue of packets of low priority, which the transmitter takes while no other packet waits.

use crate::queue::Queue;
use crate::{Histogram, LowPriorityCounters, LowPrioritySettings, Nanoseconds};

/// A drop-tail queue with counters of its own.
#[derive(Debug)]
pub(crate) struct LowPriority<P> {
    pub(crate) queue: Queue<P>,
    pub(crate) peak_bytes: u64,
    pub(crate) totals: LowPriorityCounters,
    pub(crate) sojourn: Histogram,
}

impl<P> LowPriority<P> {
    /// Empty since `start_ns`.
    pub(crate) fn new(settings: LowPrioritySettings, start_ns: Nanoseconds) -> Self {
        Self {
            queue: Queue::new(settings.queue_bytes, settings.queue_packets, start_ns),
            peak_bytes: 0,
            totals: LowPriorityCounters::default(),
            sojourn: Histogram::default(),
        }
    }

    /// Whether the transmitter, free from `free_ns` on, takes the first packet here although another one, which arrives
    /// at `other_ns`, waits: it began before that one came.
    pub(crate) fn precedes(&self, free_ns: Nanoseconds, other_ns: Nanoseconds) -> bool {
        let first_ns = self.queue.first_arrival_ns();
        first_ns.is_some_and(|first_ns| first_ns.max(free_ns) < other_ns)
    }
}
