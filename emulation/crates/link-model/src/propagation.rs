// SPDX-License-Identifier: Apache-2.0
//! Propagation: a delay, jitter around it, and never one packet before another.

use crate::{DelaySettings, Nanoseconds, SplitMix64};

/// Delays packets by `delay ± jitter`, uniformly distributed, in order.
///
/// A packet whose own delay would let it overtake leaves together with the one before it. With
/// packets closer together than the jitter this makes the mean delay longer than `delay_ns`, as
/// in every emulator that keeps order.
#[derive(Debug, Clone)]
pub struct Propagation {
    settings: DelaySettings,
    random: SplitMix64,
    last_ns: Nanoseconds,
}

impl Propagation {
    /// A path without packets on it; `random` is used only when there is jitter.
    #[must_use]
    pub fn new(settings: DelaySettings, random: SplitMix64) -> Self {
        Self {
            settings,
            random,
            last_ns: 0,
        }
    }

    /// When a packet that enters at `now` comes out.
    pub fn arrival_ns(&mut self, now: Nanoseconds) -> Nanoseconds {
        let DelaySettings {
            delay_ns,
            jitter_ns,
        } = self.settings;
        let extra_ns = match jitter_ns {
            0 => 0,
            _ => self.random.up_to(2 * jitter_ns),
        };
        self.last_ns = self.last_ns.max(now + delay_ns - jitter_ns + extra_ns);
        self.last_ns
    }
}
