// SPDX-License-Identifier: Apache-2.0
//! Sends the frames of a flow at their times.

use crate::config::Flow;
use crate::error::ProbeError;
use crate::frame;
use crate::schedule::Schedule;
use atoll_job::clock::monotonic_ns;
use atoll_measures::Histogram;
use atoll_netio::packet_socket::{PacketSocket, SEND_BATCH};
use atoll_netio::rt_scheduling;
use serde::Serialize;
use std::io;
use std::thread;
use std::time::Duration;

/// A sender that was held up longer does not send all that is due at once: the rest comes that much later.
const CATCH_UP_MAX_NS: u64 = 2_000_000;
/// After the interface took no frame at all.
const REFUSED_PAUSE: Duration = Duration::from_micros(50);

/// The frames that a flow sent.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Sent {
    frames: u64,
    /// By how much the schedule was moved because the sender was held up.
    shifted_ns: u64,
    /// The lateness of batches: that of a program on this machine that only sleeps.
    late_p99_ns: u64,
    late_max_ns: u64,
    /// From the first frame to the last, monotonic.
    duration_ns: u64,
}

/// Send all frames of `flow`, the first one at `start_ns`.
///
/// # Errors
/// When the interface fails; a full queue is waited for.
pub(crate) fn run(
    number: u16,
    flow: &Flow,
    socket: &PacketSocket,
    start_ns: u64,
) -> Result<Sent, ProbeError> {
    let failed = |source| ProbeError::Port {
        interface: flow.port.interface.clone(),
        source,
    };
    rt_scheduling::set_exact_timers().map_err(failed)?;
    let _ = rt_scheduling::set_real_time(); // not granted in user namespaces: then it is later
    let mut batch = Batch::new(number, flow);
    let mut schedule = Schedule::new(flow, start_ns);
    let mut sent = Sent::default();
    let mut lateness = Histogram::default();
    let mut last_ns = start_ns;
    while sent.frames < flow.count {
        let now = monotonic_ns();
        let due_ns = schedule.due_ns();
        if due_ns > now {
            thread::sleep(Duration::from_nanos(due_ns - now));
            continue;
        }
        let late_ns = now - due_ns;
        lateness.record(late_ns);
        if late_ns > CATCH_UP_MAX_NS {
            schedule.shift(late_ns - CATCH_UP_MAX_NS);
            sent.shifted_ns += late_ns - CATCH_UP_MAX_NS;
        }
        batch.clear();
        while !batch.full()
            && sent.frames + batch.count() < flow.count
            && schedule.due_ns() <= now + flow.burst_ns
        {
            batch.add(sent.frames + batch.count());
            schedule.advance();
        }
        batch.send(socket).map_err(failed)?;
        sent.frames += batch.count();
        last_ns = monotonic_ns();
    }
    sent.duration_ns = last_ns - start_ns;
    sent.late_p99_ns = lateness.quantile_ns(990);
    sent.late_max_ns = lateness.max_ns();
    Ok(sent)
}

/// Frames that are sent together, in memory that is used again.
#[derive(Debug)]
struct Batch {
    vlans: Vec<Option<u16>>,
    flow: u16,
    packet_bytes: u32,
    frames: Vec<Vec<u8>>,
    used: usize,
}

impl Batch {
    fn new(number: u16, flow: &Flow) -> Self {
        let vlans = if flow.vlans.is_empty() {
            vec![None]
        } else {
            flow.vlans.iter().copied().map(Some).collect()
        };
        Self {
            frames: vec![frame::build(number, flow.packet_bytes, vlans[0]); SEND_BATCH],
            vlans,
            flow: number,
            packet_bytes: flow.packet_bytes,
            used: 0,
        }
    }

    fn clear(&mut self) {
        self.used = 0;
    }

    fn full(&self) -> bool {
        self.used == self.frames.len()
    }

    fn count(&self) -> u64 {
        self.used as u64
    }

    /// One more frame, of this number.
    fn add(&mut self, sequence: u64) {
        let vlan = self.vlans[(sequence % self.vlans.len() as u64) as usize];
        let frame = &mut self.frames[self.used];
        if self.vlans.len() > 1 {
            *frame = frame::build(self.flow, self.packet_bytes, vlan);
        }
        frame::number(frame, vlan.is_some(), sequence);
        self.used += 1;
    }

    /// All of them, in order.
    fn send(&self, socket: &PacketSocket) -> io::Result<()> {
        let mut rest = &self.frames[..self.used];
        while !rest.is_empty() {
            match socket.send(rest.iter().map(Vec::as_slice)) {
                Ok(count) => rest = &rest[count..],
                Err(error) if full(&error) => thread::sleep(REFUSED_PAUSE),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Whether there was only no room at the moment (`EAGAIN`, `ENOBUFS`).
fn full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(105)
}
