// SPDX-License-Identifier: Apache-2.0
//! Standard input of a job: its configuration, then requests, then the end.

use crate::request::{NoRequest, Refusal, request_or_refusal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
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
    fn next_line(&mut self) -> Option<String> {
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

    /// The next request that has arrived, or the answer to one that is not understood.
    pub fn next_request<R: DeserializeOwned>(&mut self) -> Option<Result<R, Refusal>> {
        while let Some(line) = self.next_line() {
            if let Some(answered) = request_or_refusal(&line) {
                return Some(answered);
            }
        }
        None
    }

    /// Refuse the requests that have arrived: for a job that takes none.
    ///
    /// # Errors
    /// If standard output is closed.
    pub fn refuse_requests(&mut self) -> io::Result<()> {
        while let Some(Err(refusal)) = self.next_request::<NoRequest>() {
            crate::print(&refusal)?;
        }
        Ok(())
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

/// The results of [`Requests::wait`].
#[derive(Debug)]
pub enum Event<R> {
    /// A request, or the answer to one that is not understood.
    Request(Result<R, Refusal>),
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
            if let Some(line) = self.input.next_line() {
                return Ok(line);
            }
            if self.has_ended() {
                return Ok(String::new());
            }
            self.poll(Duration::MAX)?;
        }
    }

    /// The next event within `limit`; `None` if there is none.
    ///
    /// # Errors
    /// As of [`Requests::first_line`].
    pub fn wait<R: DeserializeOwned>(&mut self, limit: Duration) -> io::Result<Option<Event<R>>> {
        if let Some(event) = self.next_event() {
            return Ok(Some(event));
        }
        self.poll(limit)?;
        Ok(self.next_event())
    }

    fn poll(&mut self, limit: Duration) -> io::Result<()> {
        let mut polled = [
            PollFd::new(&self.input, PollFlags::IN),
            PollFd::new(&self.signals, PollFlags::IN),
        ];
        match poll(&mut polled, Timespec::try_from(limit).ok().as_ref()) {
            Ok(0) | Err(Errno::INTR) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let [input, signalled] = polled.map(|one| !one.revents().is_empty());
        self.signalled |= signalled;
        if input {
            self.input.read()?;
        }
        Ok(())
    }

    fn has_ended(&self) -> bool {
        self.signalled || self.input.ended()
    }

    fn next_event<R: DeserializeOwned>(&mut self) -> Option<Event<R>> {
        let request = self.input.next_request().map(Event::Request);
        request.or_else(|| self.has_ended().then_some(Event::Ended))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn input(text: &str) -> Input<UnixStream> {
        let (mut writer, reader) = UnixStream::pair().unwrap();
        writer.write_all(text.as_bytes()).unwrap();
        Input::new(reader)
    }

    /// The number of the next request `{"op":"count","id":..}`.
    fn next_id(input: &mut Input<UnixStream>) -> Option<u64> {
        #[derive(Deserialize)]
        #[serde(tag = "op", rename_all = "lowercase")]
        enum Request {
            Count { id: u64 },
        }

        let Request::Count { id } = input.next_request()?.unwrap();
        Some(id)
    }

    #[test]
    fn requests_that_follow_the_configuration_at_once_are_not_lost() {
        let count = |id: u64| format!(r#"{{"op":"count","id":{id}}}"#);
        let mut input = input(&["{\"mtu\":1}", &count(7), &count(8), &count(9)].join("\n"));
        assert_eq!(input.first_line().unwrap(), "{\"mtu\":1}");
        assert_eq!(next_id(&mut input), Some(7));
        assert_eq!(next_id(&mut input), Some(8));
        assert_eq!(next_id(&mut input), None, "not whole yet");
        input.read().unwrap();
        assert!(input.ended());
        assert_eq!(next_id(&mut input), Some(9), "the end ends it");
        assert_eq!(next_id(&mut input), None);
    }

    #[test]
    fn lines_without_operation_or_id_are_skipped() {
        let mut input =
            input("{}\nnonsense\n5\n{\"op\":\"count\"}\n{\"id\":1}\n{\"op\":\"count\",\"id\":1}\n");
        input.first_line().unwrap();
        assert_eq!(next_id(&mut input), Some(1));
    }

    #[test]
    fn an_input_that_ends_at_once_has_an_empty_first_line() {
        assert_eq!(input("").first_line().unwrap(), "");
        assert_eq!(input("{}").first_line().unwrap(), "{}");
    }
}
