// SPDX-License-Identifier: Apache-2.0
//! The loop that programs run in: receive, send what is due, report, wait.

use crate::clock::RealTimeOffset;
use crate::output::FrameOutput;
use crate::port::{Arrivals, Port};
use crate::precise_wait::{PreciseWait, Waking};
use crate::program::{Arrival, FrameProgram, Now};
use atoll_job::clock::{self, cpu_ns, monotonic_ns, real_time_ns};
use atoll_job::{Input, Output};
use atoll_netio::packet_socket::SEND_BATCH;
use atoll_netio::rt_scheduling;
use atoll_netio::shutdown_signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use serde::Deserialize;
use std::io;
use std::time::Duration;

/// Between two lines of counters.
const REPORT_INTERVAL_NS: u64 = 100_000_000;
/// Longest time for which arrivals are left in the ring, which holds some 5 ms of minimum-size frames at
/// 1 Gbit/s and 98 ms of large ones.
const HOLD_MAX_NS: u64 = 1_000_000;
/// The same in virtual time, where no thread is late and wake-ups are expensive.
const VIRTUAL_HOLD_MAX_NS: u64 = 4_000_000;
/// How long before its departure a frame is given to the kernel, at most: few enough wait there to fit
/// into the socket's buffer, and enough are given at once.
const AHEAD_MAX_NS: u64 = 8_000_000;
/// A real-time thread wakes 5 to 50 us after its timer; spinning longer gains nothing.
const SPIN_MAX_NS: u64 = 60_000;

/// The mechanism that sends a frame when it is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Departures {
    /// This process, which wakes up for it.
    Engine,
    /// The kernel's `fq`, which is given the frame before.
    Kernel,
}

/// How the engine waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    /// `None`: the kernel times departures where the clock is virtual and the kernel can.
    pub departures: Option<Departures>,
    /// How long to spin before a departure, at most; `None`: what the machine allows.
    pub spin_ns: Option<u64>,
    /// How long arrivals that follow others may wait in the ring: the engine is woken by the first one, and then looks
    /// as often while there are more. 0: it is woken by each. `None`: half of the program's shortest delay, up to 1 ms
    /// (in virtual time 4 ms), so that a program without delay is woken by each.
    ///
    /// A ring holds 8192 frames. Where a wake-up is expensive (in virtual time 98 us), 1 to 4 ms pay for programs
    /// without delay.
    pub polling_ns: Option<u64>,
}

/// A program with its ports.
#[derive(Debug)]
pub struct Engine<P: FrameProgram> {
    program: P,
    ports: Vec<Port>,
    departures: Departures,
    settings: Settings,
    offset: RealTimeOffset,
    clock_is_virtual: bool,
    out: FrameOutput<P::Tag>,
}

/// Events other than arrivals.
#[derive(Debug, Clone, Copy)]
struct Events {
    port_failed: bool,
    request: bool,
    signal: bool,
}

impl<P: FrameProgram> Engine<P> {
    /// `program` on its ports, in the order in which it numbers them.
    ///
    /// # Errors
    /// When the kernel is to time departures and cannot.
    pub fn new(program: P, mut ports: Vec<Port>, settings: Settings) -> io::Result<Self> {
        let clock_is_virtual = clock::is_virtual();
        let departures = match settings.departures {
            Some(Departures::Engine) => Departures::Engine,
            None if !clock_is_virtual => Departures::Engine,
            required => match ports
                .iter_mut()
                .try_for_each(Port::leave_departures_to_kernel)
            {
                Ok(()) => Departures::Kernel,
                Err(error) if required.is_some() => {
                    return Err(io::Error::other(format!(
                        "the kernel cannot time departures: {error}; use Linux with the fq queueing discipline and CAP_NET_ADMIN, or remove \"departures\""
                    )));
                }
                Err(error) => {
                    eprintln!(
                        "atoll-host: the kernel (fq) cannot pace departures, so the engine sends frames itself: {error}"
                    );
                    ports.iter_mut().for_each(Port::send_at_once);
                    Departures::Engine
                }
            },
        };
        Ok(Self {
            program,
            ports,
            departures,
            settings,
            offset: RealTimeOffset::measure(),
            clock_is_virtual,
            out: FrameOutput::default(),
        })
    }

    /// Print the program's first line, run until `input` ends or a signal asks to, print its last line.
    ///
    /// # Errors
    /// When an interface goes away or polling fails.
    pub fn run(mut self, mut input: Input<io::Stdin>) -> io::Result<()> {
        // Before any thread is started, and the thread before real-time scheduling, which it must not have.
        let signals = shutdown_signal::requests()?;
        let output = Output::start()?;
        let mut pace = PreciseWait::new(be_awake_in_time(self.settings.spin_ns)?, monotonic_ns());
        output.line(&self.program.ready());

        let mut report_ns = monotonic_ns() + REPORT_INTERVAL_NS;
        loop {
            let begin_ns = monotonic_ns();
            let arrivals = self.receive(begin_ns);
            let now = self.send_due();
            if now >= report_ns {
                report_ns += REPORT_INTERVAL_NS * ((now - report_ns) / REPORT_INTERVAL_NS + 1);
                self.count_lost()?;
                self.offset.update();
                // As it was when the last arrival was looked for.
                output.repeatable_line(&self.program.counters(at(begin_ns)));
            }

            let hold_ns = self.hold_ns();
            let next_ns = self.next_ns().min(report_ns);
            let (sleep_ns, awaited) = match arrivals {
                Arrivals::More => (0, PollFlags::IN),
                Arrivals::Some if hold_ns > 0 => {
                    let sleep_ns = pace.sleep_ns(now, next_ns).min(hold_ns);
                    (sleep_ns, PollFlags::empty())
                }
                Arrivals::Some | Arrivals::None => (pace.sleep_ns(now, next_ns), PollFlags::IN),
            };
            let Some(events) = self.wait(&input, &signals, awaited, sleep_ns)? else {
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
                while let Some(request) = input.next_request() {
                    match request {
                        Ok(request) => {
                            // Frames that arrived before the request are not subject to it.
                            let now = self.catch_up()?;
                            output.line(&self.program.on_request(request, now, &mut self.out));
                        }
                        Err(refusal) => output.line(&refusal),
                    }
                }
            }
            if events.signal || input.ended() {
                break;
            }
        }
        let now = self.catch_up()?;
        output.line(&self.program.done(now));
        output.finish();
        Ok(())
    }

    /// How long arrivals may stay in the ring. They carry their time: when traffic is dense it is enough to look at
    /// them every so often before the first can be due, instead of being woken by each.
    fn hold_ns(&self) -> u64 {
        let half_ns = self.program.shortest_delay_ns() / 2;
        match self.settings.polling_ns {
            Some(polling_ns) if self.program.may_poll() => polling_ns,
            Some(_) => 0,
            None if self.clock_is_virtual => half_ns.min(VIRTUAL_HOLD_MAX_NS),
            None => half_ns.min(HOLD_MAX_NS),
        }
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
        let due_ns = self.program.next_wake();
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
                waiting |= more && self.ports[number].last_arrival_ns < until_ns;
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
        let (program, out) = (&mut self.program, &mut self.out);
        self.ports[number].receive(&self.offset, begin, |now_ns, stamped, received| {
            let arrival = Arrival {
                port: number,
                now_ns,
                stamped,
                received,
            };
            program.on_frame(&arrival, out);
        })
    }

    /// Send what arrivals made the program emit, then a batch of what is due; returns the time.
    fn send_due(&mut self) -> u64 {
        self.send_emitted(0); // first, so that a program under load still has room for what is due
        let now = monotonic_ns();
        self.program.on_wake(now + self.ahead_ns(), &mut self.out);
        self.send_emitted(now)
    }

    /// Send what the program has emitted, the frames of one port together; returns the time, `now` if there was nothing.
    fn send_emitted(&mut self, mut now: u64) -> u64 {
        // Stable: order within a port stays.
        self.out.frames.sort_by_key(|outgoing| outgoing.port);
        let mut rest = self.out.frames.as_slice();
        while let Some(first) = rest.first() {
            let of_port = rest.partition_point(|outgoing| outgoing.port == first.port);
            let batch = of_port.min(SEND_BATCH);
            let sent = self.ports[first.port].send(&rest[..batch]);
            now = monotonic_ns();
            for outgoing in &rest[..sent] {
                self.program.on_sent(outgoing, now);
            }
            rest = &rest[sent..];
            if sent < batch {
                self.program.on_refused(&rest[0]);
                rest = &rest[1..];
            }
        }
        self.out.recycle_sent();
        now
    }

    /// Hand all to the program that has arrived or was lost until now; returns that instant.
    fn catch_up(&mut self) -> io::Result<Now> {
        let now = at(monotonic_ns());
        self.drain(now.monotonic_ns);
        self.send_emitted(now.monotonic_ns);
        self.count_lost()?;
        Ok(now)
    }

    fn count_lost(&mut self) -> io::Result<()> {
        for (number, port) in self.ports.iter().enumerate() {
            let lost = port.take_lost()?;
            if lost > 0 {
                self.program.on_unread(number, lost);
            }
        }
        Ok(())
    }

    fn check_ports(&mut self) -> io::Result<()> {
        for (number, port) in self.ports.iter().enumerate() {
            if port.was_down()? {
                self.program.on_unread(number, 0);
            }
        }
        Ok(())
    }

    /// Until something happens, at most `sleep_ns`; None when that has passed. `awaited`: of ports, besides failures.
    fn wait(
        &self,
        input: &impl AsFd,
        signals: &impl AsFd,
        awaited: PollFlags,
        sleep_ns: u64,
    ) -> io::Result<Option<Events>> {
        let mut polled: Vec<PollFd<'_>> = Vec::with_capacity(self.ports.len() + 2);
        polled.push(PollFd::new(input, PollFlags::IN));
        polled.push(PollFd::new(signals, PollFlags::IN));
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

/// `monotonic_ns`, which has just been, on all clocks.
fn at(monotonic_ns: u64) -> Now {
    Now {
        monotonic_ns,
        real_time_ns: real_time_ns(),
        cpu_ns: cpu_ns(),
    }
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
        spin_ns: spin_ns.unwrap_or(if real_time && !alone { SPIN_MAX_NS } else { 0 }),
        exact: real_time,
    })
}
