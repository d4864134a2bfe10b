// SPDX-License-Identifier: Apache-2.0
//! The program: forwards, and emits parity.

use atoll_frame_engine::{Arrival, FrameOutput, FrameProgram, Now, Outgoing};
use serde::{Deserialize, Serialize};

/// Bytes of an Ethernet header, and the type of parity frames: for local experiments (IEEE 802).
const ETHERNET_HEADER: usize = 14;
const TYPE_PARITY: [u8; 2] = [0x88, 0xb5];

const PLAIN: usize = 0;
const CODED: usize = 1;

/// Emits the exclusive or of a group's frames behind them, at the latest so long after the first one.
#[derive(Debug)]
pub(crate) struct Parity {
    group: usize,
    flush_ns: u64,
    /// Of the group that is not complete: the parity so far, how many frames it is of, and when it is to be sent.
    sum: Vec<u8>,
    frames: usize,
    due_ns: Option<u64>,
    sums: Sums,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Sums {
    pub(crate) arrived: u64,
    pub(crate) sent: u64,
    pub(crate) parity: u64,
    pub(crate) lost: u64,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Request {
    Group { frames: usize },
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum Line {
    Ready,
    Counters(Sums),
    Group { t_ns: u64, frames: usize },
    Done(Sums),
}

impl Parity {
    pub(crate) fn new(group: usize, flush_ns: u64) -> Self {
        Self {
            group,
            flush_ns,
            sum: Vec::new(),
            frames: 0,
            due_ns: None,
            sums: Sums::default(),
        }
    }

    fn add(&mut self, frame: &[u8], now_ns: u64) {
        let content = frame.get(ETHERNET_HEADER..).unwrap_or_default();
        if self.sum.len() < content.len() {
            self.sum.resize(content.len(), 0);
        }
        for (sum, byte) in self.sum.iter_mut().zip(content) {
            *sum ^= byte;
        }
        self.frames += 1;
        self.due_ns = self.due_ns.or(Some(now_ns + self.flush_ns));
    }

    fn flush(&mut self, now_ns: u64, out: &mut FrameOutput<()>) {
        let mut frame = out.buffer(ETHERNET_HEADER + self.sum.len());
        frame.extend([0xff; 6]);
        frame.extend([2, 0, 0, 0, 0, 1]);
        frame.extend(TYPE_PARITY);
        frame.extend(&self.sum);
        out.send(Outgoing {
            port: CODED,
            scheduled_ns: now_ns,
            frame,
            tag: (),
        });
        self.sums.parity += 1;
        self.sum.clear();
        self.frames = 0;
        self.due_ns = None;
    }
}

impl FrameProgram for Parity {
    type Tag = ();
    type Request = Request;
    type Line = Line;

    fn on_frame(&mut self, arrival: &Arrival<'_>, out: &mut FrameOutput<()>) {
        self.sums.arrived += 1;
        let received = arrival.received;
        if received.wire_bytes as usize > received.frame.len() {
            self.sums.lost += 1; // longer than the port's MTU, and cut
            return;
        }
        let frame = out.copy(received);
        if arrival.port == PLAIN {
            self.add(&frame, arrival.now_ns);
        }
        out.send(Outgoing {
            port: PLAIN + CODED - arrival.port,
            scheduled_ns: arrival.now_ns,
            frame,
            tag: (),
        });
        if self.frames >= self.group {
            self.flush(arrival.now_ns, out);
        }
    }

    fn next_wake(&self) -> Option<u64> {
        self.due_ns
    }

    fn on_wake(&mut self, until_ns: u64, out: &mut FrameOutput<()>) {
        if self.due_ns.is_some_and(|due_ns| due_ns <= until_ns) && !out.is_full() {
            self.flush(until_ns, out);
        }
    }

    fn on_sent(&mut self, _frame: &Outgoing<()>, _now_ns: u64) {
        self.sums.sent += 1;
    }

    fn on_refused(&mut self, _frame: &Outgoing<()>) {
        self.sums.lost += 1;
    }

    fn on_unread(&mut self, _port: usize, frames: u64) {
        self.sums.lost += frames;
    }

    fn on_request(&mut self, request: Request, now: Now, out: &mut FrameOutput<()>) -> Line {
        let Request::Group { frames } = request;
        if self.frames > 0 {
            self.flush(now.monotonic_ns, out);
        }
        self.group = frames;
        Line::Group {
            t_ns: now.real_time_ns,
            frames,
        }
    }

    fn ready(&mut self) -> Line {
        Line::Ready
    }

    fn counters(&mut self, _now: Now) -> Line {
        Line::Counters(self.sums)
    }

    fn done(&mut self, _now: Now) -> Line {
        Line::Done(self.sums)
    }
}
