// SPDX-License-Identifier: Apache-2.0
//! The state of a link's transmitter and path at each instant: as configured, or as given by the trace.

use crate::serialiser::RateAt;
use crate::trace::Trace;
use crate::{ConfigError, LinkSettings, Nanoseconds};

/// Configured rate and delay, and the trace that overrides them.
#[derive(Debug, Clone)]
pub(crate) struct LinkState {
    rate_bit_s: u64,
    delay_ns: Nanoseconds,
    trace: Trace,
}

impl LinkState {
    pub(crate) fn new(settings: &LinkSettings) -> Self {
        Self {
            rate_bit_s: settings.rate_bit_s,
            delay_ns: settings.delay_ns,
            trace: Trace::new(settings.trace.clone()),
        }
    }

    /// The propagation delay of a packet that leaves the transmitter at `now`.
    pub(crate) fn delay_ns(&self, now: Nanoseconds) -> Nanoseconds {
        let (row, _) = self.trace.at(now);
        row.and_then(|row| row.delay_ns).unwrap_or(self.delay_ns)
    }

    /// The trace's probability of loss for a packet that leaves the transmitter at `now`; None: as in the settings.
    pub(crate) fn loss(&self, now: Nanoseconds) -> Option<f64> {
        self.trace.at(now).0.and_then(|row| row.loss)
    }

    /// Whether the path is blocked at any instant from `from` to before `to`.
    pub(crate) fn is_blocked(&self, from: Nanoseconds, to: Nanoseconds) -> bool {
        let mut at = from;
        loop {
            let (row, until_ns) = self.trace.at(at);
            if row.is_some_and(|row| row.blocked) {
                return true;
            }
            if until_ns >= to {
                return false;
            }
            at = until_ns;
        }
    }

    /// The shortest propagation delay of the settings and all rows of the trace.
    pub(crate) fn shortest_delay_ns(&self) -> Nanoseconds {
        let rows = self.trace.rows().iter();
        rows.map(|row| row.delay_ns.unwrap_or(self.delay_ns))
            .min()
            .unwrap_or(self.delay_ns)
    }

    /// Begin the trace.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn start_trace(&mut self, now: Nanoseconds) -> Result<(), ConfigError> {
        if self.trace.rows().is_empty() {
            return Err(ConfigError::NoTrace);
        }
        self.trace.start(now);
        Ok(())
    }

    /// Change rate and delay from now on. Another trace has yet to be started.
    pub(crate) fn change(&mut self, settings: &LinkSettings) {
        self.rate_bit_s = settings.rate_bit_s;
        self.delay_ns = settings.delay_ns;
        if self.trace.rows() != settings.trace {
            self.trace = Trace::new(settings.trace.clone());
        }
    }
}

impl RateAt for LinkState {
    fn rate_at(&self, now: Nanoseconds) -> (u64, Nanoseconds) {
        let (row, until_ns) = self.trace.at(now);
        let traced_bit_s = row.and_then(|row| row.rate_bit_s);
        (traced_bit_s.unwrap_or(self.rate_bit_s), until_ns)
    }
}
