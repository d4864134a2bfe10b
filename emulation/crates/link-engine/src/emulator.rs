// SPDX-License-Identifier: Apache-2.0
//! The program that the frame engine runs, around a link or a delay box: departures, requests and lines.

use crate::config::Request;
use crate::frame::SentFrame;
use atoll_frame_engine::{Arrival, FrameOutput, FrameProgram, Now, Outgoing};
use atoll_link_report::{Line, LinkAnswer};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A link or a delay box. Methods that [`FrameProgram`] has as well do the same.
pub(crate) trait Emulation {
    /// Sums since the start and maxima since the last of these.
    type Counters: Serialize;
    /// What passed since the last of these.
    type Measurement: Serialize;
    /// Settings that can change.
    type Change: DeserializeOwned;

    /// Keep the frame in the model, or count why not.
    fn on_frame(&mut self, arrival: &Arrival<'_>, out: &mut FrameOutput<SentFrame>);
    /// When the next frame is due.
    fn next_departure(&self) -> Option<u64>;
    /// The next frame, if it was due at or before `now`.
    fn pop_due(&mut self, now: u64) -> Option<Outgoing<SentFrame>>;
    fn shortest_delay_ns(&self) -> u64;
    fn on_sent(&mut self, frame: &Outgoing<SentFrame>, now_ns: u64);
    fn on_refused(&mut self, frame: &Outgoing<SentFrame>);
    fn on_unread(&mut self, port: usize, frames: u64);

    /// Change settings; returns the id of the request.
    fn set(&mut self, now: u64, change: &Self::Change) -> (u64, Result<(), String>);
    /// Time 0 of the traces is `now`.
    fn start_trace(&mut self, now: u64) -> Result<(), String>;
    /// The content of `counters` lines.
    fn sums(&mut self, now: u64) -> Self::Counters;
    /// The content of `mark` and `done` lines.
    fn measurement(&mut self, now: u64) -> Self::Measurement;
}

/// An emulation as a program.
#[derive(Debug)]
pub(crate) struct Emulator<E>(pub(crate) E);

impl<E: Emulation> FrameProgram for Emulator<E> {
    type Tag = SentFrame;
    type Request = Request<E::Change>;
    type Line = Line<E::Counters, E::Measurement>;

    fn on_frame(&mut self, arrival: &Arrival<'_>, out: &mut FrameOutput<SentFrame>) {
        self.0.on_frame(arrival, out);
    }

    fn next_wake(&self) -> Option<u64> {
        self.0.next_departure()
    }

    fn on_wake(&mut self, until_ns: u64, out: &mut FrameOutput<SentFrame>) {
        while !out.is_full() {
            let Some(outgoing) = self.0.pop_due(until_ns) else {
                return;
            };
            out.send(outgoing);
        }
    }

    fn shortest_delay_ns(&self) -> u64 {
        self.0.shortest_delay_ns()
    }

    fn on_sent(&mut self, frame: &Outgoing<SentFrame>, now_ns: u64) {
        self.0.on_sent(frame, now_ns);
    }

    fn on_refused(&mut self, frame: &Outgoing<SentFrame>) {
        self.0.on_refused(frame);
    }

    fn on_unread(&mut self, port: usize, frames: u64) {
        self.0.on_unread(port, frames);
    }

    fn on_request(
        &mut self,
        request: Self::Request,
        now: Now,
        _out: &mut FrameOutput<SentFrame>,
    ) -> Self::Line {
        let t_ns = now.real_time_ns;
        match request {
            Request::Set(change) => {
                let (id, result) = self.0.set(now.monotonic_ns, &change);
                Line::Set(LinkAnswer::new(id, t_ns, result))
            }
            Request::TraceStart { id } => {
                let result = self.0.start_trace(now.monotonic_ns);
                Line::TraceStart(LinkAnswer::new(id, t_ns, result))
            }
            Request::Mark { id } => Line::Mark {
                id,
                t_ns,
                measurement: self.0.measurement(now.monotonic_ns),
            },
        }
    }

    fn ready(&mut self) -> Self::Line {
        Line::Ready
    }

    fn counters(&mut self, now: Now) -> Self::Line {
        Line::Counters {
            t_ns: now.real_time_ns,
            counters: self.0.sums(now.monotonic_ns),
        }
    }

    fn done(&mut self, now: Now) -> Self::Line {
        Line::Done {
            t_ns: now.real_time_ns,
            measurement: self.0.measurement(now.monotonic_ns),
        }
    }
}
