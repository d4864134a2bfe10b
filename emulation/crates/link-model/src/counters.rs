// SPDX-License-Identifier: Apache-2.0
//! Counters of a link.

use atoll_measures::Count;

/// Why a link lost a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropCause {
    /// The waiting bytes and its own exceed the queue's capacity, or there are too many packets.
    QueueFull,
    /// The same, of the queue of low priority.
    LowPriorityFull,
    /// Lost by the model of loss or of the trace, after it was sent (or before the queue, if the settings say so).
    Loss,
    /// Dropped by the queue's management.
    Aqm,
    /// The path was blocked while it was being sent.
    Blocked,
}

/// Lost packets, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drops {
    /// [`DropCause::QueueFull`]
    pub queue: Count,
    /// [`DropCause::LowPriorityFull`]
    pub low_priority: Count,
    /// [`DropCause::Loss`]
    pub loss: Count,
    /// [`DropCause::Aqm`]
    pub aqm: Count,
    /// [`DropCause::Blocked`]
    pub blocked: Count,
}

impl Drops {
    /// Count one packet of `bytes`.
    pub(crate) fn add(&mut self, cause: DropCause, bytes: u32) {
        let count = match cause {
            DropCause::QueueFull => &mut self.queue,
            DropCause::LowPriorityFull => &mut self.low_priority,
            DropCause::Loss => &mut self.loss,
            DropCause::Aqm => &mut self.aqm,
            DropCause::Blocked => &mut self.blocked,
        };
        count.record(bytes);
    }

    /// The sum over all causes.
    #[must_use]
    pub fn all(&self) -> Count {
        let causes = [
            self.queue,
            self.low_priority,
            self.loss,
            self.aqm,
            self.blocked,
        ];
        causes.into_iter().sum()
    }
}

/// Packets of low priority and their counted bytes since the start, which [`LinkCounters`] includes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LowPriorityCounters {
    /// Offered.
    pub arrived: Count,
    /// Sent whole by the transmitter; noise and blockages may lose them after that.
    pub sent: Count,
}

/// Packets and counted bytes since the start. `in = out + dropped + held` at every instant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkCounters {
    /// Offered.
    pub arrived: Count,
    /// Left.
    pub departed: Count,
    /// Lost.
    pub dropped: Drops,
    /// Those of `dropped` that had been sent: lost at the receiver or to a blockage.
    pub lost_after: Count,
}
