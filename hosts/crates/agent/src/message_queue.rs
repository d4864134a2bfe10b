// SPDX-License-Identifier: Apache-2.0
//! Messages to standard output, never blocking and never lost while its reader lives.

use crate::protocol::Message;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;

/// With more output than this queued, the agent takes no requests and reads no job output: jobs then
/// block on their full pipes, which is the back-pressure that bounds the agent's memory.
const HIGH_WATER_BYTES: usize = 1 << 20;

/// poll(2) answers POLLOUT for a pipe when at least this much (`PIPE_BUF`) fits: such a write never
/// blocks. So standard output need not be switched to `O_NONBLOCK`, which would switch it for
/// every process that shares it.
const ATOMIC_WRITE: usize = 4096;

/// Messages that wait for standard output.
#[derive(Debug, Default)]
pub struct MessageQueue {
    pending: Vec<u8>,
    written: usize,
    reader_closed: bool,
}

impl MessageQueue {
    /// Queue a message.
    pub fn push(&mut self, message: &Message<'_>) {
        if self.reader_closed {
            return;
        }
        // Strings, numbers and maps with string keys: nothing that JSON cannot hold.
        if serde_json::to_writer(&mut self.pending, message).is_ok() {
            self.pending.push(b'\n');
        }
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.written == self.pending.len()
    }

    /// Whether the queue is so long that nothing more should be produced.
    pub fn is_full(&self) -> bool {
        self.pending.len() - self.written > HIGH_WATER_BYTES
    }

    /// Whether the reader has closed the pipe; messages are then dropped.
    pub fn reader_closed(&self) -> bool {
        self.reader_closed
    }

    /// Drop the queue: it has no reader any more.
    pub fn discard(&mut self) {
        self.reader_closed = true;
        self.pending.clear();
        self.written = 0;
    }

    /// Write as much as possible without blocking.
    pub fn flush(&mut self) {
        while !self.is_empty() && wait_writable(&Timespec::default()) {
            let end = self.pending.len().min(self.written + ATOMIC_WRITE);
            match rustix::io::write(io::stdout(), &self.pending[self.written..end]) {
                Ok(count) => self.written += count,
                Err(Errno::INTR | Errno::AGAIN) => break,
                Err(_) => self.discard(),
            }
        }
        if self.is_empty() {
            self.pending.clear();
            self.written = 0;
        } else if self.written > HIGH_WATER_BYTES {
            self.pending.drain(..self.written);
            self.written = 0;
        }
    }

    /// Write all, giving up when the reader takes nothing for `timeout`.
    pub fn flush_all(&mut self, timeout: &Timespec) {
        while !self.is_empty() && wait_writable(timeout) {
            self.flush();
        }
    }
}

fn wait_writable(timeout: &Timespec) -> bool {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::OUT)];
    // An error condition counts as writable: the write then says which.
    matches!(poll(&mut fds, Some(timeout)), Ok(ready) if ready > 0)
}
