// SPDX-License-Identifier: Apache-2.0
//! One direction of a satellite link.

use crate::{
    ByteQueue, ConfigError, Departure, Histogram, LinkSettings, Nanoseconds, Propagation,
    RateWindows, Serialiser, SplitMix64,
};
use std::collections::VecDeque;

/// One direction of a satellite link: drop-tail byte queue, serialisation, propagation.
///
/// Arrivals must be offered in order of time. Loss and queue disciplines other than drop-tail
/// decide in [`Link::offer`], before the packet is given its slot.
#[derive(Debug)]
pub struct Link<P> {
    queue: ByteQueue,
    serialiser: Serialiser,
    propagation: Propagation,
    in_flight: VecDeque<Departure<P>>,
    last_arrival_ns: Nanoseconds,
    totals: LinkTotals,
    windows: RateWindows,
    sojourn: Histogram,
    queue_peak_bytes: u64,
}

/// What became of a packet that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It will leave at `scheduled_ns`.
    Accepted {
        /// The instant [`Link::pop_due`] will return it for.
        scheduled_ns: Nanoseconds,
    },
    /// It is gone.
    Dropped(DropCause),
}

/// Why a link lost a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropCause {
    /// The waiting bytes and its own exceed the queue's capacity.
    QueueFull,
}

/// Packets and counted bytes since the start. `in = out + dropped + held` at every instant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkTotals {
    /// Packets offered.
    pub in_packets: u64,
    /// Bytes offered.
    pub in_bytes: u64,
    /// Packets that left.
    pub out_packets: u64,
    /// Bytes that left.
    pub out_bytes: u64,
    /// Packets refused by the queue.
    pub dropped_packets: u64,
    /// Bytes refused by the queue.
    pub dropped_bytes: u64,
}

impl<P> Link<P> {
    /// An empty link, idle from `start_ns` on. Jitter is drawn from `random`.
    ///
    /// # Errors
    /// When a setting is out of its range.
    pub fn new(
        settings: &LinkSettings,
        random: SplitMix64,
        start_ns: Nanoseconds,
    ) -> Result<Self, ConfigError> {
        settings.check()?;
        Ok(Self {
            queue: ByteQueue::new(settings.queue_bytes),
            serialiser: Serialiser::new(settings.rate_bit_s, start_ns),
            propagation: Propagation::new(settings.propagation(), random),
            in_flight: VecDeque::new(),
            last_arrival_ns: start_ns,
            totals: LinkTotals::default(),
            windows: RateWindows::new(settings),
            sojourn: Histogram::default(),
            queue_peak_bytes: 0,
        })
    }

    /// A packet that counts for `bytes` arrives at `now`. An instant before the last arrival is taken
    /// for the last arrival.
    pub fn offer(&mut self, now: Nanoseconds, bytes: u32, packet: P) -> Verdict {
        let now = now.max(self.last_arrival_ns);
        self.last_arrival_ns = now;
        self.totals.in_packets += 1;
        self.totals.in_bytes += u64::from(bytes);

        let must_wait = self.serialiser.free_ns() > now;
        if must_wait && !self.queue.has_room(now, bytes) {
            self.totals.dropped_packets += 1;
            self.totals.dropped_bytes += u64::from(bytes);
            return Verdict::Dropped(DropCause::QueueFull);
        }
        let slot = self.serialiser.send(now, bytes);
        if must_wait {
            self.queue.admit(slot.begin_ns, bytes);
            self.queue_peak_bytes = self.queue_peak_bytes.max(self.queue.bytes(now));
        }
        self.sojourn.record(slot.end_ns - now);

        let scheduled_ns = self.propagation.arrival_ns(slot.end_ns);
        self.windows.record(scheduled_ns, bytes);
        self.in_flight.push_back(Departure {
            scheduled_ns,
            bytes,
            packet,
        });
        Verdict::Accepted { scheduled_ns }
    }

    /// When the next packet leaves.
    #[must_use]
    pub fn next_departure(&self) -> Option<Nanoseconds> {
        self.in_flight
            .front()
            .map(|departure| departure.scheduled_ns)
    }

    /// The next packet, if it was due at or before `now`.
    pub fn pop_due(&mut self, now: Nanoseconds) -> Option<Departure<P>> {
        if self.next_departure()? > now {
            return None;
        }
        let departure = self.in_flight.pop_front()?;
        self.totals.out_packets += 1;
        self.totals.out_bytes += u64::from(departure.bytes);
        Some(departure)
    }

    /// Packets and bytes since the start.
    #[must_use]
    pub fn totals(&self) -> LinkTotals {
        self.totals
    }

    /// Packets accepted and not yet gone: waiting, being serialised or under way.
    #[must_use]
    pub fn held_packets(&self) -> u64 {
        self.in_flight.len() as u64
    }

    /// Bytes waiting for the transmitter at `now`.
    #[must_use]
    pub fn queue_bytes(&self, now: Nanoseconds) -> u64 {
        self.queue.bytes(now)
    }

    /// The most bytes that waited at once from the last call of this (or the start) to `now`.
    pub fn take_queue_peak_bytes(&mut self, now: Nanoseconds) -> u64 {
        std::mem::replace(&mut self.queue_peak_bytes, self.queue.bytes(now))
    }

    /// Time without a packet being serialised, from the start to `now`.
    #[must_use]
    pub fn idle_ns(&self, now: Nanoseconds) -> Nanoseconds {
        self.serialiser.idle_ns(now)
    }

    /// Time in the byte queue and being serialised, of all packets accepted since the last call.
    pub fn take_sojourn(&mut self) -> Histogram {
        std::mem::take(&mut self.sojourn)
    }

    /// Windows of 100 ms since the start in which more was scheduled to leave than the rate allows.
    #[must_use]
    pub fn windows_over_rate(&self) -> u64 {
        self.windows.over_rate()
    }
}
