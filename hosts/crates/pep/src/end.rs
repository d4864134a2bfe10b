// SPDX-License-Identifier: Apache-2.0
//! One end of a connection: the socket towards the client, or the one towards the server. A stream of a multiplexed
//! connection may be in the place of either.

use atoll_netio::tcp_options::{TcpProgress, progress};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown, sockopt};
use socket2::Socket;
use std::io;

/// Whose end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Client,
    Server,
}

/// Why a peer is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Reset,
    Vanished,
    /// The multiplexed connection that carried the stream is lost.
    Cut,
}

impl Failure {
    pub(crate) fn of(error: &io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH) => Self::Vanished,
            _ => Self::Reset,
        }
    }
}

/// How far the peer's stream has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    Open,
    /// To its FIN.
    Finished,
    /// To the reset or time-out of the connection: no more can come.
    Failed,
}

/// The socket towards a peer, or the stream in its place, which is never readable or writable by itself: the other PEP's
/// frames move it.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a fact about the socket of its own"
)]
#[derive(Debug)]
pub(crate) struct End {
    /// None: a stream.
    socket: Option<Socket>,
    /// Of its connection.
    slot: usize,
    peer: Peer,
    /// As far as this program knows.
    pub readable: bool,
    pub writable: bool,
    /// The kernel has announced the end of what can be read.
    pub ending: bool,
    pub reading: Reading,
    /// A FIN was sent, or put behind what is to be sent.
    pub is_shut: bool,
    /// The peer is gone. What it sent before may still be readable.
    pub failure: Option<Failure>,
}

/// Tokens of ends are the numbers of their connections, with this bit for the server's.
const SERVER_BIT: u64 = 1;

/// The connection and end of a token.
pub(crate) fn slot_and_peer(token: u64) -> (usize, Peer) {
    let peer = if token & SERVER_BIT == 0 {
        Peer::Client
    } else {
        Peer::Server
    };
    ((token >> 1) as usize, peer)
}

impl End {
    /// Watch a new socket for the connection with this number.
    pub(crate) fn watch(
        epoll: &OwnedFd,
        socket: Socket,
        slot: usize,
        peer: Peer,
    ) -> io::Result<Self> {
        let mut end = Self::of_stream(slot, peer);
        epoll::add(epoll, &socket, end.token(), Self::events())?;
        end.socket = Some(socket);
        Ok(end)
    }

    /// A stream in the place of a socket.
    pub(crate) fn of_stream(slot: usize, peer: Peer) -> Self {
        Self {
            socket: None,
            slot,
            peer,
            readable: false,
            writable: false,
            ending: false,
            reading: Reading::Open,
            is_shut: false,
            failure: None,
        }
    }

    /// Its socket; a stream has none.
    pub(crate) fn descriptor(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.socket.as_ref().map(AsFd::as_fd).ok_or(Errno::BADF)
    }

    pub(crate) fn token(&self) -> EventData {
        let bit = match self.peer {
            Peer::Client => 0,
            Peer::Server => SERVER_BIT,
        };
        EventData::new_u64((self.slot as u64) << 1 | bit)
    }

    /// Each is reported once when it comes.
    pub(crate) fn events() -> EventFlags {
        EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET
    }

    /// Note the events that the kernel reports.
    pub(crate) fn on_events(&mut self, events: EventFlags) {
        let hang_up = EventFlags::HUP | EventFlags::ERR;
        self.readable |= events.intersects(EventFlags::IN | EventFlags::RDHUP | hang_up);
        self.ending |= events.intersects(EventFlags::RDHUP | hang_up);
        self.writable |= events.intersects(EventFlags::OUT | hang_up);
        if events.contains(EventFlags::ERR) {
            if let Err(error) = self.take_error() {
                self.fail(Failure::of(&error));
            }
        }
    }

    /// The error that the kernel has for this socket, once.
    pub(crate) fn take_error(&self) -> io::Result<()> {
        Ok(sockopt::socket_error(self.descriptor()?)??)
    }

    /// The peer is gone; the first reason counts.
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// Put a FIN behind what is to be sent.
    pub(crate) fn shut_down(&mut self) {
        if self.is_shut {
            return;
        }
        self.is_shut = true;
        let Some(socket) = &self.socket else {
            return;
        };
        if let Err(error) = shutdown(socket, Shutdown::Write) {
            self.fail(Failure::of(&error.into()));
        }
    }

    /// Whether both directions have ended, as far as this program knows.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_shut && self.reading == Reading::Finished
    }

    /// The kernel's counters; none of a socket that is gone, and of a stream.
    pub(crate) fn progress(&self) -> Option<TcpProgress> {
        progress(self.descriptor().ok()?).ok()
    }

    /// Nothing more comes from the peer, which is gone.
    pub(crate) fn abort(&mut self, failure: Failure) {
        self.fail(failure);
        if self.reading == Reading::Open {
            self.reading = Reading::Failed;
        }
    }
}
