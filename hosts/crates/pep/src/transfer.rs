// SPDX-License-Identifier: Apache-2.0
//! Passing bytes from one socket to another: by copying few, by a pipe (splice(2)) many, and never more than the far
//! socket has room for. What it does not take after all is kept here, at most as much as one read.

use crate::end::{End, Failure, Reading};
use atoll_netio::tcp_options::send_room;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::collections::VecDeque;
use std::io;

/// Read into memory at once. A read that fills it is followed by splices, until one brings less.
const COPY_BYTES: usize = 1 << 16;

/// Read before a socket is opened that takes data with its SYN: a SYN has room for less.
const FIRST_BYTES: usize = 1 << 12;

/// Capacity of the pipe, as much as a user may have without privileges (`fs.pipe-max-size`).
const PIPE_BYTES: usize = 1 << 20;

/// Passed in one turn of a direction.
const TURN_BYTES: usize = 1 << 18;

/// In this program's memory, of all connections together, when no more is read. What streams have brought is bounded by
/// their credit, and is in addition.
pub(crate) const BUFFERED_MAX_BYTES: u64 = 64 << 20;

/// What all transfers share: one pipe, empty between transfers, and memory.
pub(crate) struct Plumbing {
    pub epoll: OwnedFd,
    pipe: (OwnedFd, OwnedFd),
    pipe_bytes: usize,
    memory: Box<[u8]>,
    /// In the `pending` of all directions.
    pub buffered_bytes: u64,
    buffered_max_bytes: u64,
}

impl Plumbing {
    /// `streams_bytes`: most memory of what streams have brought.
    pub(crate) fn new(epoll: OwnedFd, streams_bytes: u64) -> io::Result<Self> {
        let pipe = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A smaller one is enough where the user has no more left (pipe(7)).
        let pipe_bytes = fcntl_setpipe_size(&pipe.1, PIPE_BYTES).unwrap_or(COPY_BYTES);
        Ok(Self {
            epoll,
            pipe,
            pipe_bytes,
            memory: vec![0; COPY_BYTES].into(),
            buffered_bytes: 0,
            buffered_max_bytes: BUFFERED_MAX_BYTES + streams_bytes,
        })
    }

    /// Whether no more is to be read before some of what is buffered has gone.
    pub(crate) fn is_full(&self) -> bool {
        self.buffered_bytes >= self.buffered_max_bytes
    }
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub(crate) struct Direction {
    /// Read and not yet taken by the far socket.
    pending: VecDeque<u8>,
    /// Much is coming: the pipe pays.
    is_bulk: bool,
    /// Taken by the far socket.
    pub passed_bytes: u64,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing can be done until a socket is ready.
    Waiting,
    /// There may be more to do at once.
    More,
    /// There is too much in memory.
    Full,
}

impl Direction {
    /// Whether nothing is on its way in this program.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Forget the bytes that were not delivered.
    pub(crate) fn discard(&mut self, plumbing: &mut Plumbing) {
        plumbing.buffered_bytes -= self.pending.len() as u64;
        self.pending = VecDeque::new();
    }

    /// Pass on bytes, a bounded amount, and the end of the stream behind it.
    pub(crate) fn pass(&mut self, from: &mut End, to: &mut End, plumbing: &mut Plumbing) -> Turn {
        let turn = self.pass_bytes(from, to, plumbing);
        if from.reading == Reading::Finished && self.is_empty() && to.failure.is_none() {
            to.shut_down();
        }
        turn
    }

    fn pass_bytes(&mut self, from: &mut End, to: &mut End, plumbing: &mut Plumbing) -> Turn {
        let turn_end = self.passed_bytes + TURN_BYTES as u64;
        while to.failure.is_none() && to.writable {
            if !self.pending.is_empty() {
                self.flush(to, plumbing);
                continue;
            }
            if from.reading != Reading::Open || !from.readable {
                break;
            }
            if self.passed_bytes >= turn_end {
                return Turn::More;
            }
            if plumbing.is_full() {
                return Turn::Full;
            }
            match to.descriptor().map_err(io::Error::from).and_then(send_room) {
                Ok(0) => to.wait_for_room(&plumbing.epoll),
                Ok(room) if self.is_bulk && room >= COPY_BYTES => {
                    self.splice(from, to, plumbing, room);
                }
                Ok(room) => self.copy(from, to, plumbing, room),
                Err(error) => to.fail(Failure::of(&error)),
            }
        }
        if to.failure.is_some() {
            self.discard(plumbing);
        }
        Turn::Waiting
    }

    /// Read from a socket, a bounded amount, for one that is to be opened.
    pub(crate) fn take_first(&mut self, from: &mut End, plumbing: &mut Plumbing) {
        if let Some(count) = from.receive(&mut plumbing.memory[..FIRST_BYTES]) {
            self.pending.extend(&plumbing.memory[..count]);
            plumbing.buffered_bytes += count as u64;
        }
    }

    /// Give what was read to a socket that is being opened: it takes what its SYN carries.
    pub(crate) fn give_first(&mut self, to: &mut End, plumbing: &mut Plumbing) {
        self.flush(to, plumbing);
        to.writable = false;
    }

    fn flush(&mut self, to: &mut End, plumbing: &mut Plumbing) {
        let taken = write_to(to, self.pending.as_slices().0);
        self.passed_bytes += taken as u64;
        plumbing.buffered_bytes -= taken as u64;
        self.pending.drain(..taken);
        if self.pending.len() <= self.pending.capacity() / 4 {
            self.pending.shrink_to(2 * self.pending.len());
        }
    }

    fn copy(&mut self, from: &mut End, to: &mut End, plumbing: &mut Plumbing, room: usize) {
        let memory = &mut plumbing.memory[..room.min(COPY_BYTES)];
        let Some(count) = from.receive(memory) else {
            return;
        };
        self.is_bulk = count == COPY_BYTES;
        let taken = write_to(to, &plumbing.memory[..count]);
        self.passed_bytes += taken as u64;
        plumbing.buffered_bytes += (count - taken) as u64;
        self.pending.extend(&plumbing.memory[taken..count]);
    }

    /// Pass on bytes of a stream; those that the socket does not take wait here.
    pub(crate) fn push(&mut self, bytes: &[u8], to: Option<&mut End>, plumbing: &mut Plumbing) {
        let to = to.filter(|to| self.pending.is_empty() && to.writable && to.failure.is_none());
        let taken = to.map_or(0, |to| write_to(to, bytes));
        self.passed_bytes += taken as u64;
        plumbing.buffered_bytes += (bytes.len() - taken) as u64;
        self.pending.extend(&bytes[taken..]);
    }

    /// Take a frame of a stream from a socket: at most `limit` bytes, behind what is in `out` already, with a header before
    /// them that `header` makes. Returns how many there were.
    pub(crate) fn frame<const N: usize>(
        &mut self,
        from: &mut End,
        limit: usize,
        out: &mut Vec<u8>,
        header: impl Fn(usize) -> [u8; N],
    ) -> usize {
        let start = out.len();
        out.resize(start + N + limit, 0);
        let count = from.receive(&mut out[start + N..]).unwrap_or(0);
        if count == 0 {
            out.truncate(start);
            return 0;
        }
        out[start..start + N].copy_from_slice(&header(count));
        out.truncate(start + N + count);
        self.passed_bytes += count as u64;
        count
    }

    /// Bytes on their way in this program.
    pub(crate) fn pending_bytes(&self) -> u64 {
        self.pending.len() as u64
    }

    fn splice(&mut self, from: &mut End, to: &mut End, plumbing: &mut Plumbing, room: usize) {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let requested = room.min(plumbing.pipe_bytes);
        let (out, into) = (&plumbing.pipe.0, &plumbing.pipe.1);
        let read = from
            .descriptor()
            .and_then(|socket| splice(socket, None, into, None, requested, flags));
        let count = match read {
            // The pipe may have been full before the socket was empty.
            Ok(count) => from.on_read(count, count),
            Err(error) => return from.on_read_error(error),
        };
        self.is_bulk = count >= COPY_BYTES;
        let mut remaining = count;
        while remaining > 0 {
            let spliced = to
                .descriptor()
                .and_then(|socket| splice(out, None, socket, None, remaining, flags));
            match spliced {
                Ok(taken) => remaining -= taken,
                Err(error) => {
                    to.on_write_error(error);
                    break;
                }
            }
        }
        self.passed_bytes += (count - remaining) as u64;
        // The next transfer needs the pipe empty.
        while remaining > 0 {
            let Ok(read) = rustix::io::read(out, &mut *plumbing.memory) else {
                break;
            };
            self.pending.extend(&plumbing.memory[..read]);
            plumbing.buffered_bytes += read as u64;
            remaining -= read;
        }
    }
}

/// Write; how much was taken.
fn write_to(to: &mut End, bytes: &[u8]) -> usize {
    if bytes.is_empty() {
        return 0;
    }
    let sent = to
        .descriptor()
        .and_then(|socket| send(socket, bytes, SendFlags::NOSIGNAL));
    match sent {
        Ok(taken) => {
            // A short write makes the kernel report when there is room again.
            to.writable = taken == bytes.len();
            taken
        }
        Err(error) => {
            to.on_write_error(error);
            0
        }
    }
}

impl End {
    /// Read into `memory`; how many bytes came, or none if the socket has nothing or has failed.
    fn receive(&mut self, memory: &mut [u8]) -> Option<usize> {
        let requested = memory.len();
        let read = self
            .descriptor()
            .and_then(|socket| recv(socket, memory, RecvFlags::empty()));
        match read {
            Ok((count, _)) => Some(self.on_read(count, requested)),
            Err(error) => {
                self.on_read_error(error);
                None
            }
        }
    }

    /// Note a read of `count` of the `requested` bytes; returns `count`.
    fn on_read(&mut self, count: usize, requested: usize) -> usize {
        if count == 0 {
            self.reading = match self.failure {
                None => Reading::Finished,
                Some(_) => Reading::Failed,
            };
        }
        // Fewer than requested: the socket is empty, and its next bytes are an event of their own (epoll(7)). An end that is
        // behind them already is none.
        self.readable = count == requested || self.ending;
        count
    }

    fn on_read_error(&mut self, error: Errno) {
        match error {
            Errno::AGAIN => self.readable = false,
            Errno::INTR => {}
            _ => {
                self.fail(Failure::of(&error.into()));
                self.reading = Reading::Failed;
            }
        }
    }

    fn on_write_error(&mut self, error: Errno) {
        match error {
            // The second: a SYN has left without data (connect(2), `TCP_FASTOPEN_CONNECT`).
            Errno::AGAIN | Errno::INPROGRESS => self.writable = false,
            Errno::INTR => {}
            _ => self.fail(Failure::of(&error.into())),
        }
    }

    /// Have the kernel report when there is room, at once if there is some by now. Sockets report it by themselves only after
    /// they have refused something.
    fn wait_for_room(&mut self, epoll: &OwnedFd) {
        self.writable = false;
        // It fails for descriptors that are not watched, and these are.
        let modified = |socket| epoll::modify(epoll, socket, self.token(), End::events());
        let _ = self.descriptor().and_then(modified);
    }
}
