// SPDX-License-Identifier: Apache-2.0
//! The interface between the engine and a program that treats frames.

use crate::output::{FrameOutput, Outgoing};
use atoll_netio::frame::Received;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A frame that arrived.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// Where, in the order in which the engine was given its ports.
    pub port: usize,
    /// When, on the engine's clock: by the kernel's stamp, or when it was read.
    pub now_ns: u64,
    /// Whether `now_ns` is the kernel's stamp. If not, the stamp fits no clock.
    pub stamped: bool,
    /// The frame. If it is longer than packets of the port's MTU make it, it may be cut: then `wire_bytes` is more than
    /// the length of `frame`, and the program must not send it on.
    pub received: &'a Received<'a>,
}

/// One instant on all clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// The engine's clock, on which frames arrive and leave (`CLOCK_MONOTONIC`).
    pub monotonic_ns: u64,
    /// The clock of messages (`CLOCK_REALTIME`, since 1970).
    pub real_time_ns: u64,
    /// CPU time of the process since its start.
    pub cpu_ns: u64,
}

/// The treatment of frames, without sockets or clocks: decides, counts and answers.
///
/// The engine calls every method from one thread. Instants are those of its clock in ns. Those of one port hardly
/// decrease: by microseconds, where the difference of the clocks is measured again, or a stamped frame follows one without
/// stamp, which has the time of its reading. A program that needs an order takes the latest so far, if that is later. Of
/// several ports they may be out of order by as much as arrivals wait in the rings.
pub trait FrameProgram {
    /// A value that the program attaches to an emitted frame, to find it again in [`FrameProgram::on_sent`]; `()` if
    /// it does not look.
    type Tag;
    /// Requests: later lines of standard input. The engine refuses a request that is none of these.
    type Request: DeserializeOwned;
    /// Lines of standard output.
    type Line: Serialize;

    /// A frame arrived. What is put into `out` leaves at once.
    fn on_frame(&mut self, arrival: &Arrival<'_>, out: &mut FrameOutput<Self::Tag>);

    /// When [`FrameProgram::on_wake`] is to be called next; `None`: not before the next arrival.
    fn next_wake(&self) -> Option<u64> {
        None
    }

    /// Emit what is due at or before `until_ns`, no more than `out` has room for: the engine comes again while
    /// [`FrameProgram::next_wake`] has passed.
    ///
    /// `until_ns` is the present, or later where the kernel times departures ([`crate::Departures::Kernel`]): then
    /// frames that are not due yet wait there.
    fn on_wake(&mut self, until_ns: u64, out: &mut FrameOutput<Self::Tag>) {
        let _ = (until_ns, out);
    }

    /// The shortest time between an arrival and a departure that depends on it, under present settings: for so long,
    /// arrivals may wait in the ring.
    fn shortest_delay_ns(&self) -> u64 {
        0
    }

    /// Whether arrivals may wait in the ring for as long as [`crate::Settings::polling_ns`] says. False while packets pass
    /// whose delay is measured.
    fn may_poll(&self) -> bool {
        true
    }

    /// `frame` was with its interface at `now_ns`, or with the kernel, which keeps it until it is due.
    fn on_sent(&mut self, frame: &Outgoing<Self::Tag>, now_ns: u64) {
        let _ = (frame, now_ns);
    }

    /// `frame` is lost: its packet is longer than the port's MTU, or the interface refused it.
    fn on_refused(&mut self, frame: &Outgoing<Self::Tag>);

    /// Frames that arrived on `port` were lost before they could be read: so many as far as that is known.
    fn on_unread(&mut self, port: usize, frames: u64);

    /// Carry out a request; the answer. All that arrived before `now` was handed over. What was due before may not have
    /// been emitted yet: [`FrameProgram::on_wake`] was not called for `now`, or had no more room.
    fn on_request(
        &mut self,
        request: Self::Request,
        now: Now,
        out: &mut FrameOutput<Self::Tag>,
    ) -> Self::Line;

    /// The first line: it works.
    fn ready(&mut self) -> Self::Line;

    /// The line that is printed ten times a second, and left out when its reader does not keep up.
    fn counters(&mut self, now: Now) -> Self::Line;

    /// The last line.
    fn done(&mut self, now: Now) -> Self::Line;
}
