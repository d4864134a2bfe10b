// SPDX-License-Identifier: Apache-2.0
//! The satellite link and the latency classes as pure functions of arrival times.
//!
//! No clock, no sockets, no global randomness: instants (nanoseconds on any steadily growing scale)
//! and seeds are arguments, so that equal arrivals give equal departures on every machine.
//!
//! ```text
//! offer ── drop-tail byte queue ── serialisation at rate ── propagation (delay, jitter) ── pop_due     Link
//! offer ────────────────────────────────────────────────── propagation (delay, jitter) ── pop_due     DelayLine
//! ```
//!
//! A drop-tail link serves packets in order of arrival, so the instant at which a packet will leave
//! is known when it arrives. Both types compute it there and then; the caller only has to send what
//! [`Link::pop_due`] returns. A caller that comes late sends late, but the next packet's scheduled
//! departure does not move: lateness cannot accumulate.

mod byte_queue;
mod config;
mod delay_line;
mod histogram;
mod link;
mod propagation;
mod random;
mod serialiser;
mod windows;

pub use byte_queue::ByteQueue;
pub use config::{ConfigError, DelaySettings, LinkSettings};
pub use delay_line::DelayLine;
pub use histogram::Histogram;
pub use link::{DropCause, Link, LinkTotals, Verdict};
pub use propagation::Propagation;
pub use random::SplitMix64;
pub use serialiser::{Serialiser, Slot};
pub use windows::RateWindows;

/// Nanoseconds: an instant on the caller's clock or a duration.
pub type Nanoseconds = u64;

/// A packet that leaves, and when it was due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departure<P> {
    /// The instant at which the last bit leaves, by the virtual clock; actual sending is this or later.
    pub scheduled_ns: Nanoseconds,
    /// Bytes the packet counts for.
    pub bytes: u32,
    /// What was offered.
    pub packet: P,
}
