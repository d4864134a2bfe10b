// SPDX-License-Identifier: Apache-2.0
//! The loop that both programs run in: receive, send what is due, report, wait.

use crate::clock::RealTimeOffset;
use crate::config::Departures;
use crate::error::{EngineError, Refusal};
use crate::ports::{Arrivals, Instant, Outgoing, Port};
use crate::precise_wait::{PreciseWait, Waking};
use crate::request::{self, Change, Request};
use atoll_job::clock::{self, monotonic_ns, real_time_ns};
use atoll_job::{Input, Output};
use atoll_link_report::{Answer, Line, Op};
use atoll_netio::frame::Received;
use atoll_netio::packet::SEND_BATCH;
use atoll_netio::rt_scheduling;
use atoll_netio::shutdown_signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use serde::Serialize;
use std::io;
use std::time::Duration;

/// Between two lines of counters.
const REPORT_NS: u64 = 100_000_000;
/// Longest time for which arrivals are left in the ring, which holds some 5 ms of minimum-size frames at
/// 1 Gbit/s and 98 ms of large ones.
const HOLD_MAX_NS: u64 = 1_000_000;
/// The same in virtual time, where no thread is late and wake-ups are expensive.
const VIRTUAL_HOLD_MAX_NS: u64 = 4_000_000;
/// How long before its departure a frame is given to the kernel, at most: few enough wait there to fit
/// into the socket's buffer, and enough are given at once.
const AHEAD_MAX_NS: u64 = 8_000_000;
/// A real-time thread wakes 5 to 50 us after its timer; spinning longer gains nothing.
const SPIN_NS: u64 = 60_000;

/// The treatment of frames: decides and counts, without sockets or clocks.
pub(crate) trait Program {
    /// Sums since the start and maxima since the last of these.
    type Counters: Serialize;
    /// What passed since the last of these.
    type Measurement: Serialize;

    /// The shortest time between an arrival and its departure, under present settings.
    fn shortest_delay_ns(&self) -> u64;
    /// A frame arrived on `port` at `now`.
    fn arrival(&mut self, port: usize, now: u64, received: &Received<'_>);
    /// The instant of an arrival on `port` is unknown: it is the one at which the frame was read.
    fn unstamped(&mut self, port: usize);
    /// When the next frame is due.
    fn next_departure(&self) -> Option<u64>;
    /// The next frame, if it was due at or before `now`.
    fn pop_due(&mut self, now: u64) -> Option<Outgoing>;
    /// `outgoing` was with its interface at `now`, or with the kernel, which waits until it is due.
    fn sent(&mut self, outgoing: &Outgoing, now: u64);
    /// The interface would not take `outgoing`.
    fn not_sent(&mut self, outgoing: &Outgoing);
    /// Frames that arrived on `port` were lost before they could be counted: so many as far as that is known.
    fn not_received(&mut self, port: usize, packets: u64);
    /// Change settings.
    fn set(&mut self, now: u64, change: &Change) -> Result<(), Refusal>;
    /// Time 0 of the traces is `now`.
    fn start_trace(&mut self, now: u64) -> Result<(), Refusal>;
    /// The content of `counters` lines.
    fn counters(&mut self, now: u64) -> Self::Counters;
    /// The content of `mark` and `done` lines.
    fn measurement(&mut self, now: u64) -> Self::Measurement;
}

/// A program with its ports.
#[derive(Debug)]
pub(crate) struct Engine<P> {
    program: P,
    ports: Vec<Port>,
    departures: Departures,
    offset: RealTimeOffset,
    clock_is_virtual: bool,
    due: Vec<Outgoing>,
}

/// Events other than arrivals.
#[derive(Debug, Clone, Copy)]
struct Events {
    port_failed: bool,
    request: bool,
    signal: bool,
}

impl<P: Program> Engine<P> {
    /// `program` on its ports, in the order in which it numbers them. `departures` None: the kernel's where the clock is
    /// virtual and the kernel can.
    ///
    /// # Errors
    /// When the kernel is to see to departures and cannot.
    pub(crate) fn new(
        program: P,
        mut ports: Vec<Port>,
        departures: Option<Departures>,
    ) -> Result<Self, EngineError> {
        let clock_is_virtual = clock::is_virtual();
        let departures = match departures {
            Some(Departures::Engine) => Departures::Engine,
            None if !clock_is_virtual => Departures::Engine,
            asked => match leave_departures_to_kernel(&mut ports) {
                Ok(()) => Departures::Kernel,
                Err(error) if asked.is_some() => return Err(EngineError::KernelDepartures(error)),
                Err(error) => {
                    eprintln!("atoll-host: departures are not left to the kernel: {error}");
                    ports.iter_mut().for_each(Port::send_at_once);
                    Departures::Engine
                }
            },
        };
        Ok(Self {
            program,
            ports,
            departures,
            offset: RealTimeOffset::measure(),
            clock_is_virtual,
            due: Vec::with_capacity(SEND_BATCH),
        })
    }

    /// Say `ready`, run until standard input ends or a signal asks to, say `done`.
    ///
    /// `spin_ns`: how long to spin before a departure at most; None: what the machine allows.
    ///
    /// # Errors
    /// When an interface goes away or polling fails.
    pub(crate) fn run(
        mut self,
        mut input: Input<io::Stdin>,
        spin_ns: Option<u64>,
    ) -> Result<(), EngineError> {
        // Before any thread is started, and the thread before real-time scheduling, which it must not have.
        let signals = shutdown_signal::requests()?;
        let output = Output::start()?;
        let mut pace = PreciseWait::new(be_awake_in_time(spin_ns)?, monotonic_ns());
        output.line(&Line::<P::Counters, P::Measurement>::Ready);

        let mut report_ns = monotonic_ns() + REPORT_NS;
        loop {
            let known_ns = monotonic_ns();
            let arrivals = self.receive(known_ns);
            let now = self.send_due();
            if now >= report_ns {
                report_ns += REPORT_NS * ((now - report_ns) / REPORT_NS + 1);
                self.count_lost()?;
                self.offset.update();
                // As it was when the last arrival was looked for.
                let counters = self.program.counters(known_ns);
                let t_ns = real_time_ns();
                output.repeatable_line(&Line::<_, P::Measurement>::Counters { t_ns, counters });
            }

            let hold_ns = self.hold_ns();
            let next_ns = self.next_ns().min(report_ns);
            let (sleep_ns, of_ports) = match arrivals {
                Arrivals::More => (0, true),
                Arrivals::Some if hold_ns > 0 => (pace.sleep_ns(now, next_ns).min(hold_ns), false),
                Arrivals::Some | Arrivals::None => (pace.sleep_ns(now, next_ns), true),
            };
            let Some(events) = self.wait(&input, &signals, of_ports, sleep_ns)? else {
                if arrivals != Arrivals::More {
                    pace.spin(next_ns, monotonic_ns);
                }
                continue;
            };
            if events.port_failed {
                self.check_ports()?;
            }
            if events.request {
                input.read()?;
                while let Some(request) = input.next_request(request::parse) {
                    output.line(&self.answer(request)?);
                }
            }
            if events.signal || input.ended() {
                break;
            }
        }
        let (t_ns, measurement) = self.measurement()?;
        output.line(&Line::<P::Counters, _>::Done { t_ns, measurement });
        output.finish();
        Ok(())
    }

    /// How long arrivals may stay in the ring. They carry their time: when traffic is dense it is enough to look at
    /// them every so often before the first can be due, instead of being woken by each.
    fn hold_ns(&self) -> u64 {
        let most_ns = if self.clock_is_virtual {
            VIRTUAL_HOLD_MAX_NS
        } else {
            HOLD_MAX_NS
        };
        (self.program.shortest_delay_ns() / 2).min(most_ns)
    }

    /// How long before it is due a frame may be sent. All that leaves in that time is known: what arrives later
    /// leaves later, by the shortest delay at least.
    fn ahead_ns(&self) -> u64 {
        match self.departures {
            Departures::Engine => 0,
            Departures::Kernel => (self.program.shortest_delay_ns() / 2).min(AHEAD_MAX_NS),
        }
    }

    /// When something is to be sent next.
    fn next_ns(&self) -> u64 {
        // Later than it may be, so that there is more to be sent at once, and early enough.
        let early_ns = self.ahead_ns() / 4;
        let due_ns = self.program.next_departure();
        due_ns.map_or(u64::MAX, |due| due.saturating_sub(early_ns))
    }

    /// Take in a batch of what has arrived at `begin` or since on each port.
    fn receive(&mut self, begin: u64) -> Arrivals {
        self.update_offset();
        let ports = 0..self.ports.len();
        let arrivals = ports.map(|number| self.receive_from(number, begin));
        arrivals.max().unwrap_or(Arrivals::None)
    }

    /// Take in all that has arrived before `until_ns`, and send what is due meanwhile.
    ///
    /// A ring can hold far more than a batch when this thread was kept off the processor: what is done at `until_ns`
    /// must find all of it in the model, or its arrivals could only be taken for later ones.
    fn drain(&mut self, until_ns: u64) {
        self.update_offset();
        loop {
            let mut waiting = false;
            for number in 0..self.ports.len() {
                let more = self.receive_from(number, until_ns) == Arrivals::More;
                waiting |= more && self.ports[number].last_arrival_ns() < until_ns;
            }
            if !waiting {
                return;
            }
            self.send_due();
        }
    }

    fn update_offset(&mut self) {
        if !self.clock_is_virtual {
            self.offset.update(); // nobody steps a virtual clock
        }
    }

    fn receive_from(&mut self, number: usize, begin: u64) -> Arrivals {
        let program = &mut self.program;
        self.ports[number].receive(&self.offset, begin, |instant, received| {
            let now = match instant {
                Instant::Stamped(now) => now,
                Instant::Read(now) => {
                    program.unstamped(number);
                    now
                }
            };
            program.arrival(number, now, received);
        })
    }

    /// Send a batch of what is due, those of one port together; returns the time.
    fn send_due(&mut self) -> u64 {
        let mut now = monotonic_ns();
        let until_ns = now + self.ahead_ns();
        while self.due.len() < SEND_BATCH {
            let Some(outgoing) = self.program.pop_due(until_ns) else {
                break;
            };
            self.due.push(outgoing);
        }
        // Stable: order within a port stays.
        self.due.sort_by_key(|outgoing| outgoing.port);
        let mut rest = self.due.as_slice();
        while let Some(first) = rest.first() {
            let of_port = rest.partition_point(|outgoing| outgoing.port == first.port);
            let sent = self.ports[first.port].send(&rest[..of_port]);
            now = monotonic_ns();
            for outgoing in &rest[..sent] {
                self.program.sent(outgoing, now);
            }
            rest = &rest[sent..];
            if sent < of_port {
                self.program.not_sent(&rest[0]);
                rest = &rest[1..];
            }
        }
        self.due.clear();
        now
    }

    /// Carry out requests.
    fn answer(&mut self, request: Request) -> io::Result<Line<P::Counters, P::Measurement>> {
        // What arrived before the request is not subject to it.
        let (now, t_ns) = (monotonic_ns(), real_time_ns());
        self.drain(now);
        self.count_lost()?;
        Ok(obey(&mut self.program, request, now, t_ns))
    }

    /// Receive pending frames and measure.
    fn measurement(&mut self) -> io::Result<(u64, P::Measurement)> {
        let (known_ns, t_ns) = (monotonic_ns(), real_time_ns());
        self.drain(known_ns);
        self.count_lost()?;
        Ok((t_ns, self.program.measurement(known_ns)))
    }

    fn count_lost(&mut self) -> io::Result<()> {
        for (number, port) in self.ports.iter().enumerate() {
            let lost = port.take_lost()?;
            if lost > 0 {
                self.program.not_received(number, lost);
            }
        }
        Ok(())
    }

    fn check_ports(&mut self) -> Result<(), EngineError> {
        for (number, port) in self.ports.iter().enumerate() {
            if port.was_down()? {
                self.program.not_received(number, 0);
            }
        }
        Ok(())
    }

    /// Until something happens, at most `sleep_ns`; None when that has passed. Arrivals count only if `of_ports`.
    fn wait(
        &self,
        input: &impl AsFd,
        signals: &impl AsFd,
        of_ports: bool,
        sleep_ns: u64,
    ) -> Result<Option<Events>, EngineError> {
        let mut polled: Vec<PollFd<'_>> = Vec::with_capacity(self.ports.len() + 2);
        polled.push(PollFd::new(input, PollFlags::IN));
        polled.push(PollFd::new(signals, PollFlags::IN));
        let awaited = if of_ports {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        polled.extend(self.ports.iter().map(|port| PollFd::new(port, awaited)));
        let timeout = Timespec::try_from(Duration::from_nanos(sleep_ns)).ok();
        match poll(&mut polled, timeout.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let failed = PollFlags::ERR | PollFlags::HUP;
        Ok(Some(Events {
            request: !polled[0].revents().is_empty(),
            signal: !polled[1].revents().is_empty(),
            port_failed: polled[2..]
                .iter()
                .any(|port| port.revents().intersects(failed)),
        }))
    }
}

/// Carry out a request at `now`; returns the answer, sent at `t_ns`.
pub(crate) fn obey<P: Program>(
    program: &mut P,
    request: Request,
    now: u64,
    t_ns: u64,
) -> Line<P::Counters, P::Measurement> {
    let message = |refusal: Refusal| refusal.to_string();
    let (op, id, done) = match request {
        Request::Set(change) => {
            let done = program.set(now, &change);
            (Op::Set, change.id, done.map_err(message))
        }
        Request::TraceStart { id } => {
            let done = program.start_trace(now);
            (Op::TraceStart, id, done.map_err(message))
        }
        Request::Mistaken { op, id, error } => (op, id, Err(error)),
        Request::Mark { id } => {
            let measurement = program.measurement(now);
            return Line::Mark {
                id,
                t_ns,
                measurement,
            };
        }
    };
    Line::answer(op, Answer::new(id, t_ns, done))
}

fn leave_departures_to_kernel(ports: &mut [Port]) -> io::Result<()> {
    ports
        .iter_mut()
        .try_for_each(Port::leave_departures_to_kernel)
}

/// Ask the kernel for all that helps to wake in time.
///
/// Refusals are the normal case in a user namespace: departures are then later by some tens of
/// microseconds, which the run records.
fn be_awake_in_time(spin_ns: Option<u64>) -> io::Result<Waking> {
    rt_scheduling::set_exact_timers()?;
    let _ = rt_scheduling::lock_memory();
    let real_time = rt_scheduling::set_real_time().is_ok();
    let alone =
        std::thread::available_parallelism().map_or(true, |processors| processors.get() == 1);
    Ok(Waking {
        spin_ns: spin_ns.unwrap_or(if real_time && !alone { SPIN_NS } else { 0 }),
        exact: real_time,
    })
}
