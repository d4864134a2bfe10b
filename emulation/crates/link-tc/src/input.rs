// SPDX-License-Identifier: Apache-2.0
//! Standard input and the request to end, as one stream of events with a time limit.
//!
//! One thread waits for all of them: where a system call is dear (User-Mode Linux: 20 us), every thread that hands on
//! its wake-ups would double the cost.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use serde::Deserialize;
use std::io;
use std::time::Duration;

/// Read at once.
const CHUNK_BYTES: usize = 1 << 13;

/// Input of the link.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A line of standard input.
    Line(String),
    /// Standard input ended, or SIGTERM came.
    Ended,
}

/// Requests to a running link.
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

/// Where events come from.
#[derive(Debug)]
pub(crate) struct Input {
    signals: OwnedFd,
    /// Read, and not yet given out.
    buffer: Vec<u8>,
    ended: bool,
}

impl Input {
    /// Start listening. SIGTERM ends nothing by itself from now on.
    ///
    /// # Errors
    /// When there can be no more descriptors.
    pub(crate) fn start() -> io::Result<Self> {
        Ok(Self {
            signals: netio::shutdown_signal::requests()?,
            buffer: Vec::new(),
            ended: false,
        })
    }

    /// The first line; empty when the input ends, or SIGTERM comes, before there is any.
    ///
    /// # Errors
    /// Errors of polling and reading; none are expected.
    pub(crate) fn first_line(&mut self) -> io::Result<String> {
        loop {
            match self.wait(Duration::MAX)? {
                Some(Event::Line(line)) => return Ok(line),
                Some(Event::Ended) => return Ok(String::new()),
                None => {}
            }
        }
    }

    /// The next input within `limit`; `None` if there is none.
    ///
    /// # Errors
    /// As of [`Input::first_line`].
    pub(crate) fn wait(&mut self, limit: Duration) -> io::Result<Option<Event>> {
        if let Some(event) = self.next_event() {
            return Ok(Some(event));
        }
        let stdin = io::stdin();
        let mut polled = [
            PollFd::new(&stdin, PollFlags::IN),
            PollFd::new(&self.signals, PollFlags::IN),
        ];
        match poll(&mut polled, Timespec::try_from(limit).ok().as_ref()) {
            Ok(0) | Err(Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let [input, signalled] = polled.map(|one| !one.revents().is_empty());
        self.ended |= signalled;
        if input {
            self.read()?;
        }
        Ok(self.next_event())
    }

    /// Read the available input.
    fn read(&mut self) -> io::Result<()> {
        let mut chunk = [0; CHUNK_BYTES];
        match rustix::io::read(io::stdin(), &mut chunk) {
            Ok(0) => self.ended = true,
            Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn next_event(&mut self) -> Option<Event> {
        let line: Vec<u8> = match self.buffer.iter().position(|&byte| byte == b'\n') {
            Some(end) => self.buffer.drain(..=end).collect(),
            None if self.ended && !self.buffer.is_empty() => std::mem::take(&mut self.buffer), // the end ends it, too
            None => return self.ended.then_some(Event::Ended),
        };
        Some(Event::Line(
            String::from_utf8_lossy(&line).trim_end().to_owned(),
        ))
    }
}
