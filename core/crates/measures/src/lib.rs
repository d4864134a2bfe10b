// SPDX-License-Identifier: Apache-2.0
//! Histograms, counters and maxima of packets: values without clock or sockets.
//!
//! A program that passes packets reports sums since its start often, and what passed since a mark on request:
//!
//! ```
//! use atoll_measures::{Count, Histogram, Marked, Peak, Since};
//!
//! let (mut passed, mut marked) = (Count::default(), Marked::default());
//! let (mut lateness, mut queue) = (Histogram::default(), Peak::default());
//! for (bytes, late_ns, waiting_bytes) in [(1500, 900, 3000), (40, 70_000, 0)] {
//!     passed.record(bytes);
//!     lateness.record(late_ns);
//!     queue.record(waiting_bytes);
//! }
//! assert_eq!(marked.measure(passed), Count { packets: 2, bytes: 1540 });
//! passed.record(1000);
//! assert_eq!(marked.measure(passed), Count { packets: 1, bytes: 1000 }, "since the mark");
//! assert!((70_000..=74_375).contains(&lateness.quantile_ns(990)));
//! assert_eq!((queue.take_interval(), queue.take_interval()), (3000, 0));
//! assert_eq!(queue.take_measurement(), 3000, "whatever the intervals meanwhile");
//! ```
#![forbid(unsafe_code)]

mod histogram;
mod sums;

pub use histogram::Histogram;
pub use sums::{Count, Marked, Peak, Since};
