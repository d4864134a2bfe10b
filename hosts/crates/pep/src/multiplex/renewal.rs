// SPDX-License-Identifier: Apache-2.0
//! When an idle multiplexed connection is to have a successor.

use atoll_netio::tcp_options::TcpProgress;

/// A connection with a small window has been idle for so long when it is renewed; twice as long each time if the last one was
/// renewed unused, as its successors lose packets, too, up to the second.
const FIRST_NS: u64 = 1_000_000_000;
const MAX_NS: u64 = 64 * FIRST_NS;

/// Of one connection.
#[derive(Debug)]
pub(crate) struct Renewal {
    /// The other PEP has requested it.
    pub is_requested_there: bool,
    /// This PEP has requested it of the other one.
    pub is_requested_here: bool,
    /// The connection has carried no stream.
    is_unused: bool,
    idle_since_ns: Option<u64>,
    pause_ns: u64,
}

impl Renewal {
    pub(crate) fn new() -> Self {
        Self::with_pause(FIRST_NS)
    }

    /// Of a connection that has to be idle for `pause_ns`, if it is not used.
    pub(crate) fn with_pause(pause_ns: u64) -> Self {
        Self {
            is_requested_there: false,
            is_requested_here: false,
            is_unused: true,
            idle_since_ns: None,
            pause_ns,
        }
    }

    /// The connection carries a stream.
    pub(crate) fn note_use(&mut self) {
        (self.is_unused, self.idle_since_ns) = (false, None);
    }

    /// Whether it is due: the connection has been idle for long enough, and its congestion window was reduced to less than
    /// `window_segments`, or the other PEP has requested it. `progress`: none if it is not idle now.
    pub(crate) fn is_due(
        &mut self,
        progress: Option<TcpProgress>,
        window_segments: Option<u32>,
        now_ns: u64,
    ) -> bool {
        let Some(progress) = progress.filter(TcpProgress::is_flushed) else {
            self.idle_since_ns = None;
            return false;
        };
        let since_ns = *self.idle_since_ns.get_or_insert(now_ns);
        let is_small = progress.has_reduced_window
            && window_segments.is_some_and(|initial| progress.window_segments < initial);
        (is_small || self.is_requested_there) && now_ns >= since_ns + self.pause_ns
    }

    /// It has begun: not again soon. Returns how long the successor has to be idle, if it is not used.
    pub(crate) fn begin(&mut self) -> u64 {
        self.idle_since_ns = None;
        self.pause_ns = if self.is_unused {
            (2 * self.pause_ns).min(MAX_NS)
        } else {
            FIRST_NS
        };
        self.pause_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: TcpProgress = TcpProgress {
        connecting: false,
        closed: false,
        rtt_us: 500_000,
        acknowledged_bytes: 0,
        received_bytes: 0,
        window_segments: 10,
        has_reduced_window: true,
        unacknowledged_segments: 0,
        unsent_bytes: 0,
        since_acknowledgement_ms: 0,
    };

    #[test]
    fn it_is_due_after_a_second_of_idleness_with_a_small_window() {
        let mut renewal = Renewal::new();
        let mut due = |progress, window, at_ns| renewal.is_due(progress, Some(window), at_ns);
        assert!(!due(Some(IDLE), 11, 0));
        assert!(!due(None, 11, FIRST_NS / 2), "it was busy");
        assert!(!due(Some(IDLE), 11, FIRST_NS));
        assert!(!due(Some(IDLE), 11, 2 * FIRST_NS - 1));
        assert!(
            !due(Some(IDLE), 10, 2 * FIRST_NS),
            "the window is not small"
        );
        let never_reduced = TcpProgress {
            has_reduced_window: false,
            ..IDLE
        };
        assert!(!due(Some(never_reduced), 11, 2 * FIRST_NS), "it is BBR's");
        assert!(due(Some(IDLE), 11, 2 * FIRST_NS));
        renewal.is_requested_there = true;
        assert!(renewal.is_due(Some(IDLE), None, 2 * FIRST_NS));
    }

    #[test]
    fn successors_that_are_not_used_are_renewed_more_and_more_rarely() {
        let mut pause_ns = FIRST_NS;
        for _ in 0..10 {
            let next_ns = Renewal::with_pause(pause_ns).begin();
            assert_eq!(next_ns, (2 * pause_ns).min(MAX_NS));
            pause_ns = next_ns;
        }
        let mut used = Renewal::with_pause(pause_ns);
        used.note_use();
        assert_eq!(used.begin(), FIRST_NS);
    }
}
