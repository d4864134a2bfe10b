// SPDX-License-Identifier: Apache-2.0
//! The queues before the transmitter, limited in bytes like that of a satellite modem, and optionally in packets: the main
//! one, and that of low priority, from which the transmitter takes packets while no other one waits.

use crate::{Histogram, LowPriorityCounters, LowPrioritySettings, Nanoseconds};
use std::collections::VecDeque;

/// A packet that waits for the transmitter.
#[derive(Debug)]
pub(crate) struct Waiting<P> {
    pub(crate) arrival_ns: Nanoseconds,
    pub(crate) bytes: u32,
    pub(crate) packet: P,
}

/// Packets in order of arrival, and how many bytes waited at instants not long ago.
///
/// A packet is refused when the waiting bytes plus its own exceed the capacity, so a small packet still
/// enters a queue that is full for large ones. The packet being serialised does not wait.
///
/// Arrivals are read in batches, so the transmitter may have been served past the instant of the next
/// one. What left the queue is therefore remembered until an arrival after it.
#[derive(Debug)]
pub(crate) struct Queue<P> {
    capacity_bytes: u64,
    capacity_packets: Option<u64>,
    waiting: VecDeque<Waiting<P>>,
    waiting_bytes: u64,
    /// When packets left the queue that had to wait, and their bytes; the latest last.
    departed: VecDeque<(Nanoseconds, u32)>,
    departed_bytes: u64,
    empty_since_ns: Nanoseconds,
}

impl<P> Queue<P> {
    /// Empty since `start_ns`.
    pub(crate) fn new(
        capacity_bytes: u64,
        capacity_packets: Option<u64>,
        start_ns: Nanoseconds,
    ) -> Self {
        Self {
            capacity_bytes,
            capacity_packets,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            departed: VecDeque::new(),
            departed_bytes: 0,
            empty_since_ns: start_ns,
        }
    }

    /// Change the capacities. Packets in the queue stay.
    pub(crate) fn resize(&mut self, bytes: u64, packets: Option<u64>) {
        self.capacity_bytes = bytes;
        self.capacity_packets = packets;
    }

    /// Move all packets of another queue behind those of this one, whatever the capacities.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.waiting.append(&mut other.waiting);
        self.waiting_bytes += std::mem::take(&mut other.waiting_bytes);
    }

    /// Forget what happened up to `now`, the instant of an arrival. Later calls must not lie before it.
    pub(crate) fn forget(&mut self, now: Nanoseconds) {
        while let Some(&(departed_ns, bytes)) = self.departed.front() {
            if departed_ns > now {
                break;
            }
            self.departed_bytes -= u64::from(bytes);
            self.departed.pop_front();
        }
    }

    /// Whether a packet of `bytes` finds room at the instant of the last [`Queue::forget`].
    pub(crate) fn has_room(&self, bytes: u32) -> bool {
        let packets = (self.waiting.len() + self.departed.len()) as u64;
        self.bytes() + u64::from(bytes) <= self.capacity_bytes
            && self.capacity_packets.is_none_or(|limit| packets < limit)
    }

    /// Bytes that waited at the instant of the last [`Queue::forget`], all of which have arrived.
    pub(crate) fn bytes(&self) -> u64 {
        self.waiting_bytes + self.departed_bytes
    }

    /// Bytes that wait at `now`, as far as departures are computed.
    pub(crate) fn bytes_at(&self, now: Nanoseconds) -> u64 {
        let later = self.departed.iter().rev().take_while(|&&(at, _)| at > now);
        self.waiting_bytes + later.map(|&(_, bytes)| u64::from(bytes)).sum::<u64>()
    }

    /// The instant at which the last packet that waited stopped to, if none waits now.
    pub(crate) fn empty_since_ns(&self) -> Option<Nanoseconds> {
        self.waiting.is_empty().then_some(self.empty_since_ns)
    }

    /// When the first packet that waits arrived.
    pub(crate) fn first_arrival_ns(&self) -> Option<Nanoseconds> {
        self.waiting.front().map(|first| first.arrival_ns)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// A packet waits from now on.
    pub(crate) fn push(&mut self, packet: Waiting<P>) {
        self.waiting_bytes += u64::from(packet.bytes);
        self.waiting.push_back(packet);
    }

    /// The first packet and the instant at which it is taken: `free_ns`, or when it arrives if that is later.
    pub(crate) fn pop(&mut self, free_ns: Nanoseconds) -> Option<(Nanoseconds, Waiting<P>)> {
        let first = self.waiting.pop_front()?;
        self.waiting_bytes -= u64::from(first.bytes);
        let taken_ns = free_ns.max(first.arrival_ns);
        if taken_ns > first.arrival_ns {
            self.departed.push_back((taken_ns, first.bytes));
            self.departed_bytes += u64::from(first.bytes);
        }
        self.empty_since_ns = taken_ns;
        Some((taken_ns, first))
    }

    /// Bytes not taken yet, at whatever instant that is.
    pub(crate) fn backlog_bytes(&self) -> u64 {
        self.waiting_bytes
    }
}

/// A drop-tail queue with counters of its own.
#[derive(Debug)]
pub(crate) struct LowPriority<P> {
    /// Empty if the settings no longer have this queue, whose counters stay.
    pub(crate) queue: Queue<P>,
    pub(crate) is_open: bool,
    pub(crate) peak_bytes: u64,
    pub(crate) totals: LowPriorityCounters,
    pub(crate) sojourn: Histogram,
}

impl<P> LowPriority<P> {
    /// Empty since `start_ns`.
    pub(crate) fn new(settings: LowPrioritySettings, start_ns: Nanoseconds) -> Self {
        Self {
            queue: Queue::new(settings.queue_bytes, settings.queue_packets, start_ns),
            is_open: true,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(packets: Option<u64>) -> Queue<()> {
        let mut queue = Queue::new(3000, packets, 0);
        for bytes in [1500, 1400] {
            queue.push(Waiting {
                arrival_ns: 0,
                bytes,
                packet: (),
            });
        }
        queue
    }

    #[test]
    fn a_small_packet_enters_where_a_large_one_no_longer_fits() {
        let mut queue = queue(None);
        queue.forget(50);
        assert!(!queue.has_room(1500));
        assert!(queue.has_room(100));
        assert!(!queue.has_room(101));
    }

    #[test]
    fn a_limit_in_packets_counts_those_waiting() {
        let mut queue = queue(Some(2));
        assert!(!queue.has_room(1));
        queue.pop(100);
        queue.forget(99);
        assert!(!queue.has_room(1));
        queue.forget(100);
        assert!(queue.has_room(1));
    }

    #[test]
    fn a_packet_waits_until_it_is_taken_whenever_that_is_computed() {
        let mut queue = queue(None);
        queue.pop(100);
        queue.pop(200);
        assert_eq!(
            [99, 100, 200].map(|now| queue.bytes_at(now)),
            [2900, 1400, 0]
        );
        queue.forget(99);
        assert_eq!(queue.bytes(), 2900);
        queue.forget(100);
        assert!(queue.has_room(1600) && !queue.has_room(1601));
        assert_eq!(queue.empty_since_ns(), Some(200));
    }
}
