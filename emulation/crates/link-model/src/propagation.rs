// SPDX-License-Identifier: Apache-2.0
//! Packets in propagation: a delay, jitter around it, and - unless reordering is enabled - never one before another.

use crate::jitter::Jitter;
use crate::{DelaySettings, Departure, Nanoseconds, SplitMix64};
use std::collections::VecDeque;

/// A path and the packets on it.
///
/// In order, a packet whose own delay would let it overtake leaves together with the one before it. With
/// packets closer together than the jitter this makes the mean delay longer than configured, as
/// in every emulator that keeps order.
#[derive(Debug)]
pub(crate) struct Propagation<P> {
    jitter: Jitter,
    reorder: bool,
    last_ns: Nanoseconds,
    /// In the order in which they leave.
    packets: VecDeque<Departure<P>>,
}

impl<P> Propagation<P> {
    /// A path without packets on it; `random` is used only when there is jitter.
    pub(crate) fn new(settings: &DelaySettings, random: SplitMix64) -> Self {
        Self {
            jitter: Jitter::new(settings.jitter, random),
            reorder: settings.reorder,
            last_ns: 0,
            packets: VecDeque::new(),
        }
    }

    /// Other jitter and order for packets that enter from now on.
    pub(crate) fn change(&mut self, settings: &DelaySettings) {
        self.jitter.change(settings.jitter);
        self.reorder = settings.reorder;
    }

    /// A packet enters at `now` a path of `delay_ns`; returns when it leaves.
    pub(crate) fn push(
        &mut self,
        now: Nanoseconds,
        delay_ns: Nanoseconds,
        bytes: u32,
        packet: P,
    ) -> Nanoseconds {
        let delay_ns = delay_ns.saturating_add_signed(self.jitter.deviation_ns());
        let own_ns = now + delay_ns;
        let scheduled_ns = if self.reorder {
            own_ns
        } else {
            own_ns.max(self.last_ns)
        };
        let departure = Departure {
            scheduled_ns,
            bytes,
            packet,
        };
        if scheduled_ns >= self.last_ns {
            self.last_ns = scheduled_ns;
            self.packets.push_back(departure);
        } else {
            let later = self
                .packets
                .partition_point(|other| other.scheduled_ns <= scheduled_ns);
            self.packets.insert(later, departure);
        }
        scheduled_ns
    }

    /// When the next packet leaves.
    pub(crate) fn next_departure(&self) -> Option<Nanoseconds> {
        self.packets.front().map(|departure| departure.scheduled_ns)
    }

    /// The next packet, if it was due at or before `now`.
    pub(crate) fn pop_due(&mut self, now: Nanoseconds) -> Option<Departure<P>> {
        if self.next_departure()? > now {
            return None;
        }
        self.packets.pop_front()
    }

    /// Packets on the path.
    pub(crate) fn len(&self) -> u64 {
        self.packets.len() as u64
    }
}
