// SPDX-License-Identifier: Apache-2.0
//! Standard input and the request to end, as one stream of events with a time limit.

use rustix::event::{PollFd, PollFlags, poll};
use serde::Deserialize;
use std::io::{self, BufRead};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::Instant;

/// What the link is told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A line of standard input.
    Line(String),
    /// Standard input ended, or SIGTERM came.
    Ended,
}

/// What may be asked while it runs.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub(crate) enum Request {
    /// End a measurement, begin the next one.
    Mark { id: u64 },
    /// Change the link; only the engine can.
    Set { id: u64 },
    /// Begin a trace; only the engine has any.
    TraceStart { id: u64 },
}

/// The events; two threads wait for them.
#[derive(Debug)]
pub(crate) struct Input {
    events: Receiver<Event>,
}

impl Input {
    /// Start listening. SIGTERM ends nothing by itself from now on.
    ///
    /// # Errors
    /// When there can be no more threads or descriptors.
    pub(crate) fn start() -> io::Result<Self> {
        let signals = netio::termination::requests()?;
        let (sender, events) = channel();
        let ended = sender.clone();
        Builder::new().name("signals".to_owned()).spawn(move || {
            let mut wanted = [PollFd::new(&signals, PollFlags::IN)];
            while poll(&mut wanted, None).is_err() {} // EINTR, the only error there is
            // Fails when the program has ended already.
            let _ = ended.send(Event::Ended);
        })?;
        Builder::new().name("input".to_owned()).spawn(move || {
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                if sender.send(Event::Line(line)).is_err() {
                    return;
                }
            }
            let _ = sender.send(Event::Ended); // as above
        })?;
        Ok(Self { events })
    }

    /// The first line; empty when the input ends before there is any.
    pub(crate) fn first_line(&self) -> String {
        match self.events.recv() {
            Ok(Event::Line(line)) => line,
            Ok(Event::Ended) | Err(_) => String::new(),
        }
    }

    /// What comes before `instant`; `None` if nothing does.
    pub(crate) fn wait_until(&self, instant: Instant) -> Option<Event> {
        match self
            .events
            .recv_timeout(instant.saturating_duration_since(Instant::now()))
        {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Event::Ended),
        }
    }
}
