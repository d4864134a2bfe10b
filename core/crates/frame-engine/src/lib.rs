// SPDX-License-Identifier: Apache-2.0
//! Runs a program that takes and emits Ethernet frames on packet sockets, as a job.
//!
//! ```text
//! packet socket ── receive ring ──> FrameProgram::on_frame ──┐ FrameOutput
//!                                   FrameProgram::on_wake ───┴──> packet socket     one thread: `Engine`
//!                                                            └─ or the kernel's `fq`, with the instant: `Departures`
//! standard input ── requests ─────> FrameProgram::on_request, counters
//!                                   lines ──> standard output                       a thread of its own: `atoll_job::Output`
//! ```
//!
//! A program is a value without sockets and clocks. It may delay frames (link and delay boxes), forward them at once,
//! or emit frames that it never received, when a frame arrives or at an instant of its choice. One thread serves all
//! ports: a packet costs it a few microseconds, and a second thread would need locks around the counters and compete
//! for the same processors (measurements: docs/decisions/0008-link-engine-one-thread.md).
//!
//! # Example
//! A program that sends every frame to the other port, with a duplicate of each third one:
//!
//! ```
//! use atoll_frame_engine::{Arrival, FrameOutput, FrameProgram, Now, Outgoing, Received};
//! use serde_json::{Value, json};
//!
//! #[derive(Default)]
//! struct Duplicator { frames: u64, lost: u64 }
//!
//! impl FrameProgram for Duplicator {
//!     type Tag = ();
//!     type Request = Value;
//!     type Line = Value;
//!
//!     fn on_frame(&mut self, arrival: &Arrival<'_>, out: &mut FrameOutput<()>) {
//!         self.frames += 1;
//!         for _ in 0..if self.frames % 3 == 0 { 2 } else { 1 } {
//!             let frame = out.copy(arrival.received);
//!             out.send(Outgoing { port: 1 - arrival.port, scheduled_ns: arrival.now_ns, frame, tag: () });
//!         }
//!     }
//!     fn on_refused(&mut self, _frame: &Outgoing<()>) { self.lost += 1; }
//!     fn on_unread(&mut self, _port: usize, frames: u64) { self.lost += frames; }
//!     fn on_request(&mut self, request: Value, _now: Now, _out: &mut FrameOutput<()>) -> Value {
//!         json!({"type": "answer", "to": request})
//!     }
//!     fn ready(&mut self) -> Value { json!({"type": "ready"}) }
//!     fn counters(&mut self, now: Now) -> Value { json!({"type": "counters", "t_ns": now.real_time_ns}) }
//!     fn done(&mut self, _now: Now) -> Value { json!({"type": "done", "frames": self.frames, "lost": self.lost}) }
//! }
//!
//! // Without sockets, as tests do:
//! let (mut program, mut out) = (Duplicator::default(), FrameOutput::default());
//! let received = Received { real_time_ns: 0, wire_bytes: 60, frame: &[0; 60], vlan: None, checksum_missing: false };
//! for now_ns in 0..3 {
//!     program.on_frame(&Arrival { port: 0, now_ns, stamped: true, received: &received }, &mut out);
//! }
//! assert_eq!(out.take().len(), 4);
//!
//! // As a job between two interfaces, which looks at its arrivals every 2 ms while there are any:
//! fn job() -> Result<(), Box<dyn std::error::Error>> {
//!     use atoll_frame_engine::{Engine, Port, Settings};
//!     let mut input = atoll_job::Input::standard();
//!     let [left, right]: [String; 2] = atoll_job::configuration(&input.first_line()?)?;
//!     let ports = vec![Port::open(&left, 1500)?, Port::open(&right, 9000)?];
//!     let settings = Settings { polling_ns: Some(2_000_000), ..Settings::default() };
//!     Ok(Engine::new(Duplicator::default(), ports, settings)?.run(input)?)
//! }
//! ```
#![forbid(unsafe_code)]

mod clock;
mod engine;
mod kernel_pacing;
mod output;
mod port;
mod precise_wait;
mod program;
mod punctuality;

pub use atoll_netio::frame::Received;
pub use engine::{Departures, Engine, Settings};
pub use kernel_pacing::KernelPaced;
pub use output::{FrameOutput, Outgoing};
pub use port::Port;
pub use program::{Arrival, FrameProgram, Now};
pub use punctuality::{Doubtful, Lateness, Punctuality, Timing};
