// SPDX-License-Identifier: Apache-2.0
//! Standard input of a job: its configuration, then requests, then the end.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::io;
use std::time::Duration;

/// Read at once: configurations that hold a trace have megabytes.
const CHUNK_BYTES: usize = 1 << 16;

/// Lines from a descriptor that can be polled. It is read without a buffer of the standard library, so that a poll
/// shows whether more input or its end follows.
#[derive(Debug)]
pub struct Input<D> {
    descriptor: D,
    buffer: Vec<u8>,
    /// So much of `buffer` holds no end of a line.
    searched: usize,
    ended: bool,
}

impl Input<io::Stdin> {
    /// Standard input of this process. Nothing else may read it meanwhile.
    #[must_use]
    pub fn standard() -> Self {
        Self::new(io::stdin())
    }
}

impl<D: AsFd> Input<D> {
    /// The lines of `descriptor`.
    #[must_use]
    pub fn new(descriptor: D) -> Self {
        Self {
            descriptor,
            buffer: Vec::new(),
            searched: 0,
            ended: false,
        }
    }

    /// Wait for the first line; empty when the input ends before there is any.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn first_line(&mut self) -> io::Result<String> {
        loop {
            if let Some(line) = self.next_line() {
                return Ok(line);
            }
            if self.ended {
                return Ok(String::new());
            }
            self.read()?;
        }
    }

    /// Read the available input. Blocks unless the descriptor polls readable.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn read(&mut self) -> io::Result<()> {
        let end = self.buffer.len();
        self.buffer.resize(end + CHUNK_BYTES, 0);
        let read = rustix::io::read(&self.descriptor, &mut self.buffer[end..]);
        self.buffer.truncate(end + read.unwrap_or(0));
        match read {
            Ok(0) => self.ended = true,
            Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// The next line that has arrived. The end of the input ends a line, too.
    pub fn next_line(&mut self) -> Option<String> {
        let unseen = &self.buffer[self.searched..];
        let line: Vec<u8> = match unseen.iter().position(|&byte| byte == b'\n') {
            Some(end) => self.buffer.drain(..=self.searched + end).collect(),
            None if self.ended && !self.buffer.is_empty() => std::mem::take(&mut self.buffer),
            None => {
                self.searched = self.buffer.len();
                return None;
            }
        };
        self.searched = 0;
        Some(String::from_utf8_lossy(&line).trim().to_owned())
    }

    /// The next request that has arrived. A line that `parse` refuses is reported on standard error and skipped.
    pub fn next_request<R, E: Display>(
        &mut self,
        parse: impl Fn(&str) -> Result<R, E>,
    ) -> Option<R> {
        while let Some(line) = self.next_line() {
            match parse(&line) {
                Ok(request) => return Some(request),
                Err(error) => crate::log_line(&format!("request ignored: {error}: {line}")),
            }
        }
        None
    }

    /// Whether the input has ended.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.ended
    }
}

impl<D: AsFd> AsFd for Input<D> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Parse a request. One that is not understood, but has an `op` and an `id`, becomes `mistaken` of these and the error,
/// so that it is answered.
///
/// # Errors
/// The line is no request and has no id to answer.
pub fn request<R: DeserializeOwned, O: DeserializeOwned>(
    line: &str,
    mistaken: impl FnOnce(O, u64, String) -> R,
) -> serde_json::Result<R> {
    /// As much as an answer needs.
    #[derive(Deserialize)]
    struct Address<O> {
        op: O,
        id: u64,
    }

    serde_json::from_str(line).or_else(|error| match serde_json::from_str(line) {
        Ok(Address { op, id }) => Ok(mistaken(op, id, error.to_string())),
        Err(_) => Err(error),
    })
}

/// Discard pending input of a job that takes no requests; returns whether the input has ended.
///
/// # Errors
/// Errors of reading.
pub fn discard(descriptor: impl AsFd) -> io::Result<bool> {
    match rustix::io::read(descriptor, &mut [0; 4096]) {
        Ok(count) => Ok(count == 0),
        Err(Errno::INTR | Errno::AGAIN) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The results of [`Requests::wait`].
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A line of standard input.
    Line(String),
    /// Standard input ended, or a signal asks to end.
    Ended,
}

/// Standard input and the signals that ask to end, for a job that waits for nothing else.
///
/// One thread waits for all of them: where a system call is expensive (User-Mode Linux: 20 us), a thread that hands
/// on its wake-ups would double the cost.
#[derive(Debug)]
pub struct Requests {
    input: Input<io::Stdin>,
    signals: OwnedFd,
    signalled: bool,
}

impl Requests {
    /// Start listening. SIGTERM no longer ends the process by itself.
    ///
    /// # Errors
    /// When there can be no more descriptors.
    pub fn start() -> io::Result<Self> {
        Ok(Self {
            input: Input::standard(),
            signals: atoll_netio::shutdown_signal::requests()?,
            signalled: false,
        })
    }

    /// Wait for the first line; empty when the input ends, or a signal comes, before there is any.
    ///
    /// # Errors
    /// Errors of polling and reading; none are expected.
    pub fn first_line(&mut self) -> io::Result<String> {
        loop {
            match self.wait(Duration::MAX)? {
                Some(Event::Line(line)) => return Ok(line),
                Some(Event::Ended) => return Ok(String::new()),
                None => {}
            }
        }
    }

    /// The next event within `limit`; `None` if there is none.
    ///
    /// # Errors
    /// As of [`Requests::first_line`].
    pub fn wait(&mut self, limit: Duration) -> io::Result<Option<Event>> {
        if let Some(event) = self.next_event() {
            return Ok(Some(event));
        }
        let mut polled = [
            PollFd::new(&self.input, PollFlags::IN),
            PollFd::new(&self.signals, PollFlags::IN),
        ];
        match poll(&mut polled, Timespec::try_from(limit).ok().as_ref()) {
            Ok(0) | Err(Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let [input, signalled] = polled.map(|one| !one.revents().is_empty());
        self.signalled |= signalled;
        if input {
            self.input.read()?;
        }
        Ok(self.next_event())
    }

    fn next_event(&mut self) -> Option<Event> {
        let ended = self.signalled || self.input.ended();
        let line = self.input.next_line().map(Event::Line);
        line.or(ended.then_some(Event::Ended))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn input(text: &str) -> Input<UnixStream> {
        let (mut writer, reader) = UnixStream::pair().unwrap();
        writer.write_all(text.as_bytes()).unwrap();
        Input::new(reader)
    }

    fn number(line: &str) -> Result<u32, std::num::ParseIntError> {
        line.parse()
    }

    #[test]
    fn requests_that_follow_the_configuration_at_once_are_not_lost() {
        let mut input = input("{\"mtu\":1}\n7\n8\n9");
        assert_eq!(input.first_line().unwrap(), "{\"mtu\":1}");
        assert_eq!(input.next_request(number), Some(7));
        assert_eq!(input.next_request(number), Some(8));
        assert_eq!(input.next_request(number), None, "not whole yet");
        input.read().unwrap();
        assert!(input.ended());
        assert_eq!(input.next_request(number), Some(9), "the end ends it");
        assert_eq!(input.next_request(number), None);
    }

    #[test]
    fn lines_that_are_no_request_are_skipped() {
        let mut input = input("\n\nnonsense\n1\n");
        input.first_line().unwrap();
        assert_eq!(input.next_request(number), Some(1));
    }

    #[test]
    fn an_input_that_ends_at_once_has_an_empty_first_line() {
        assert_eq!(input("").first_line().unwrap(), "");
        assert_eq!(input("{}").first_line().unwrap(), "{}");
    }

    #[test]
    fn discarded_input_shows_its_end() {
        let (mut writer, reader) = UnixStream::pair().unwrap();
        writer.write_all(b"nobody reads this").unwrap();
        assert!(!discard(&reader).unwrap());
        drop(writer);
        assert!(discard(&reader).unwrap());
    }
}
