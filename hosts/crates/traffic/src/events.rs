// SPDX-License-Identifier: Apache-2.0
//! One epoll loop for everything a job waits for: its sockets, the next instant, and the requests to stop.

use crate::job::{Input, failed};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Tokens from here on are the loop's own.
const RESERVED: u64 = u64::MAX - 2;
const TIMER: u64 = RESERVED;
const SIGNALS: u64 = RESERVED + 1;
const INPUT: u64 = RESERVED + 2;

/// Why [`Events::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// SIGTERM, SIGINT, SIGHUP or the end of standard input: finish.
    Stop,
    /// Sockets are ready, or the instant has come, or both.
    Work,
}

/// The descriptors a job waits for.
#[derive(Debug)]
pub struct Events {
    epoll: OwnedFd,
    timer: OwnedFd,
    armed_ns: Option<u64>,
    /// The timer has fired and stays ready until it is set again.
    timer_fired: bool,
    stop: Option<Stop>,
}

#[derive(Debug)]
struct Stop {
    _signals: OwnedFd,
    input: Input,
}

impl Events {
    /// A loop that watches sockets and instants only.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN)?;
        Ok(Self {
            epoll,
            timer,
            armed_ns: None,
            timer_fired: false,
            stop: None,
        })
    }

    /// A loop that also watches termination signals and standard input, whose requests it refuses.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn for_job(mut input: Input) -> io::Result<Self> {
        let mut events = Self::new()?;
        let signals = atoll_netio::shutdown_signal::requests()?;
        events.add(&signals, SIGNALS, EventFlags::IN)?;
        match events.add(&input, INPUT, EventFlags::IN) {
            // A regular file: nothing to wait for.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                while !input.ended() {
                    input.read().map_err(failed("read standard input"))?;
                }
            }
            added => added?,
        }
        events.stop = Some(Stop {
            _signals: signals,
            input,
        });
        Ok(events)
    }

    /// Watch `socket` for `flags`, reported with `token` (which must stay below 2^64 - 3).
    ///
    /// # Errors
    /// If the kernel is out of memory.
    pub fn add(&self, socket: impl AsFd, token: u64, flags: EventFlags) -> io::Result<()> {
        let token = EventData::new_u64(token);
        Ok(epoll::add(&self.epoll, socket, token, flags)?)
    }

    /// Change the events for which `socket` is watched.
    ///
    /// # Errors
    /// If it is not watched.
    pub fn modify(&self, socket: impl AsFd, token: u64, flags: EventFlags) -> io::Result<()> {
        let token = EventData::new_u64(token);
        Ok(epoll::modify(&self.epoll, socket, token, flags)?)
    }

    /// No longer watch `socket`. Closing it does the same.
    ///
    /// # Errors
    /// If it is not watched.
    pub fn remove(&self, socket: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, socket)?)
    }

    /// Sleep until a socket is ready or the monotonic clock shows `until_ns` (never, if None), then fill `ready`
    /// with what is, in the kernel's order: longest ready first.
    ///
    /// At most as many are reported as `ready` has capacity for, and those beyond come first the next time.
    ///
    /// # Errors
    /// None are expected.
    pub fn wait(&mut self, ready: &mut Vec<Event>, until_ns: Option<u64>) -> io::Result<Wake> {
        if let Some(stop) = &mut self.stop {
            stop.input
                .refuse_requests()
                .map_err(failed("write to standard output"))?;
            if stop.input.ended() {
                return Ok(Wake::Stop);
            }
        }
        self.arm(until_ns)?;
        ready.clear();
        match epoll::wait(&self.epoll, spare_capacity(ready), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut wake = Wake::Work;
        for event in &*ready {
            match event.data.u64() {
                SIGNALS => wake = Wake::Stop,
                INPUT => {
                    if let Some(stop) = &mut self.stop {
                        stop.input.read().map_err(failed("read standard input"))?;
                    }
                }
                TIMER => self.timer_fired = true,
                _ => {}
            }
        }
        ready.retain(|event| event.data.u64() < RESERVED);
        Ok(wake)
    }

    fn arm(&mut self, until_ns: Option<u64>) -> io::Result<()> {
        if self.armed_ns == until_ns && !self.timer_fired {
            return Ok(());
        }
        // Zero would disarm the timer; an instant in the past fires at once.
        let instant = Duration::from_nanos(until_ns.map_or(0, |until_ns| until_ns.max(1)));
        let it_value = Timespec::try_from(instant).map_err(|_| Errno::OVERFLOW)?;
        let it_interval = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        timerfd_settime(
            &self.timer,
            TimerfdTimerFlags::ABSTIME,
            &Itimerspec {
                it_interval,
                it_value,
            },
        )?;
        self.armed_ns = until_ns;
        self.timer_fired = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::monotonic_ns;

    #[test]
    fn an_instant_wakes_once_and_not_before() {
        let mut events = Events::new().unwrap();
        let mut ready = Vec::with_capacity(4);
        let until_ns = monotonic_ns() + 20_000_000;
        assert_eq!(events.wait(&mut ready, Some(until_ns)).unwrap(), Wake::Work);
        assert!(ready.is_empty());
        assert!(monotonic_ns() >= until_ns);
        // An instant that is past wakes at once, again and again.
        for _ in 0..2 {
            assert_eq!(events.wait(&mut ready, Some(1)).unwrap(), Wake::Work);
        }
        // No instant: only the socket wakes, though the timer had fired.
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        events.add(&reader, 7, EventFlags::IN).unwrap();
        let writing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            rustix::io::write(&writer, b"x").unwrap();
            writer
        });
        assert_eq!(events.wait(&mut ready, None).unwrap(), Wake::Work);
        assert_eq!(
            ready
                .iter()
                .map(|event| event.data.u64())
                .collect::<Vec<_>>(),
            [7]
        );
        drop(writing.join().unwrap());
    }

    #[test]
    fn more_ready_sockets_than_room_take_turns() {
        let mut events = Events::new().unwrap();
        let pipes: Vec<_> = (0..20).map(|_| rustix::pipe::pipe().unwrap()).collect();
        for (token, (reader, writer)) in pipes.iter().enumerate() {
            events.add(reader, token as u64, EventFlags::IN).unwrap();
            rustix::io::write(writer, b"x").unwrap();
        }
        let mut seen = std::collections::BTreeSet::new();
        let mut ready = Vec::with_capacity(5);
        for _ in 0..20_usize.div_ceil(ready.capacity()) {
            events.wait(&mut ready, None).unwrap();
            seen.extend(ready.iter().map(|event| event.data.u64()));
        }
        assert_eq!(seen.len(), 20);
    }
}
