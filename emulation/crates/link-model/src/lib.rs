// SPDX-License-Identifier: Apache-2.0
//! The satellite link and the latency classes as pure functions of arrival times.
//!
//! No clock, no sockets, no global randomness: instants (nanoseconds on any steadily growing scale)
//! and seeds are arguments, so that equal arrivals give equal departures on every machine.
//!
//! ```text
//! enqueue ── queue (drop-tail, CoDel, RED) ── serialisation at rate ── blockage? loss? ── propagation ── pop_due     Link
//! enqueue ────────────────────────────────────────────────────────────────────────── propagation ── pop_due     DelayLine
//! ```
//!
//! A packet that noise loses has used queue and transmitter, as one that a blockage loses; it is counted as dropped when its
//! serialisation ends. On request loss happens before the queue instead.
//!
//! A link may have a second queue, of low priority. Whenever the transmitter becomes free it takes the first packet of the
//! main queue, or the first one of low priority if the main queue is empty. It never interrupts a packet.
//!
//! Rate, delay, loss and blockage of a link may follow a trace, and its settings may be changed while packets are
//! in it. Everything is computed at the instants at which it happens, not at those of the calls: a caller
//! that comes late sends late, but the next packet's scheduled departure does not move, so
//! lateness cannot accumulate.
//!
//! # Units
//! Instants and durations are nanoseconds (`_ns`), rates bits per second (`_bit_s`), sizes bytes (`_bytes`). A packet has
//! the bytes that the caller counts it for: rate, queue and counters know no headers. Probabilities are 0 to 1.
//!
//! # Example
//! A GEO link of 16 Mbit/s whose queue holds 3000 bytes, in simulated time:
//!
//! ```
//! use atoll_link_model::{Link, LinkSettings, SplitMix64, Enqueued};
//!
//! let settings = LinkSettings {
//!     rate_bit_s: 16_000_000,
//!     delay_ns: 250_000_000,
//!     queue_bytes: 3000,
//!     ..LinkSettings::default()
//! };
//! let mut link = Link::new(&settings, SplitMix64::new(1, 0), 0)?;
//! // Four packets of 1500 bytes at once: one is being sent, two wait, and there is no room for the last one.
//! let verdicts = ["a", "b", "c", "d"].map(|packet| link.enqueue(0, 1500, packet));
//! assert_eq!(verdicts.map(|verdict| verdict == Enqueued::Accepted), [true, true, true, false]);
//!
//! // 1500 bytes take 0.75 ms at 16 Mbit/s.
//! assert_eq!(link.next_departure(), Some(250_750_000));
//! assert!(link.pop_due(250_749_999).is_none());
//! let departures: Vec<_> = std::iter::from_fn(|| link.pop_due(260_000_000)).collect();
//! assert_eq!(departures.iter().map(|each| each.packet).collect::<String>(), "abc");
//! assert_eq!(departures[2].scheduled_ns, 252_250_000);
//! assert_eq!(link.totals().dropped.queue.packets, 1);
//! # Ok::<(), atoll_link_model::ConfigError>(())
//! ```
//!
//! # Features
//! `serde`: settings can be read from and written to the JSON of a job's configuration.
#![forbid(unsafe_code)]

mod aqm;
mod codel;
mod config;
mod counters;
mod delay_line;
mod jitter;
mod link;
mod link_state;
mod loss;
mod propagation;
mod queue;
mod range_checks;
mod red;
mod serialiser;
mod trace;

pub use aqm::AqmSettings;
pub use atoll_measures::{Count, Histogram};
pub use atoll_random::SplitMix64;
pub use config::{DelaySettings, LinkSettings, LowPrioritySettings};
pub use counters::{DropCause, Drops, LinkCounters, LowPriorityCounters};
pub use delay_line::DelayLine;
pub use jitter::{JitterKind, JitterSettings};
pub use link::{Enqueued, Link};
pub use loss::{LossKind, LossPlace, LossSettings};
pub use range_checks::ConfigError;
pub use trace::TraceRow;

/// Nanoseconds: an instant on the caller's clock or a duration.
pub type Nanoseconds = u64;

/// A packet that leaves, and when it was due.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Departure<P> {
    /// The instant at which the last bit leaves, by the virtual clock; actual sending is this or later.
    pub scheduled_ns: Nanoseconds,
    /// Bytes the packet counts for.
    pub bytes: u32,
    /// The packet.
    pub packet: P,
}
