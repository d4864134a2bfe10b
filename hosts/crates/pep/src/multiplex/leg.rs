// SPDX-License-Identifier: Apache-2.0
//! A multiplexed connection of a pair of legs: its life, its bytes, and the order of its streams.
//!
//! One of the two PEPs connects, and again after a time if that fails or the connection is lost. The connection has the
//! addresses of two hosts that the chain carries packets between, and a port that no host uses.
//!
//! An idle connection whose congestion window has become smaller than the initial one is renewed: losses that have nothing to do
//! with its own load would slow down its next streams, while a new connection may send the initial window at once (RFC 5681,
//! section 3.1). The new one is made first. Streams of the old one end there; when it has none, the PEP that connects ends it.

use crate::end::{End, Failure, Peer};
use crate::multiplex::credit::Budget;
use crate::multiplex::frame::{BadFrame, Frame, Message, PAYLOAD_BYTES};
use crate::multiplex::renewal::Renewal;
use crate::multiplex::stream::Stream;
use atoll_netio::tcp_options::set_max_pacing_rate;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::Socket;
use std::collections::{HashMap, VecDeque};
use std::io;

const MILLISECOND_NS: u64 = 1_000_000;

/// The pause before the connection is tried again doubles from the first to the second.
const PAUSE_NS: u64 = 200 * MILLISECOND_NS;
const PAUSE_MAX_NS: u64 = 5_000 * MILLISECOND_NS;

/// The other PEP has said hello by then, or is none.
const HELLO_NS: u64 = 20_000 * MILLISECOND_NS;

/// Streams get turns while less is on its way to the socket.
const OUTGOING_BYTES: usize = 4 * PAYLOAD_BYTES;

/// Nothing is read while more waits for the socket: answers to a peer that does not read take no more memory. Two PEPs never
/// wait for each other so: an OPEN for each of the connections that may be pending is a tenth of it.
pub(crate) const OUTGOING_MAX_BYTES: usize = 1 << 20;

/// Read at once.
const INCOMING_BYTES: usize = 16 * PAYLOAD_BYTES;

/// Read in one turn of the program's loop.
const TURN_BYTES: usize = 1 << 20;

/// Its socket is watched as that of a connection with this number, plus its own. No other connection has it.
pub(crate) const FIRST_SLOT: usize = 1 << 30;

/// A connection that is lost, with the reason if there is one to report.
pub(crate) type Lost = Option<BadFrame>;

#[derive(Debug)]
enum State {
    /// To be tried at this time, or when it is wanted or the other PEP connects.
    Down {
        at_ns: Option<u64>,
    },
    /// Until this time the other PEP has to say hello.
    Beginning {
        until_ns: u64,
    },
    Up,
}

/// The connection.
#[derive(Debug)]
pub(crate) struct Leg {
    connects: bool,
    state: State,
    pause_ns: u64,
    /// Its socket, if there is one.
    pub end: Option<End>,
    /// Received, no whole frame yet.
    incoming: Vec<u8>,
    /// Frames, whole or the rest of the first one, that the socket has not taken. Others are appended.
    pub outgoing: Vec<u8>,
    /// To be sent before any stream has a turn.
    padding_bytes: usize,
    /// Slots of connections by the numbers of their streams.
    streams: HashMap<u32, usize>,
    /// Slots and streams that want to send, in the order of their turns.
    waiting: VecDeque<(usize, u32)>,
    next_id: u32,
    /// The pause before a socket that was full is tried again. Linux reports its room when acknowledgements come, of which
    /// there are none in the first round trip after idle time, while pacing empties it.
    retry_pause_ns: Option<u64>,
    retry_at_ns: Option<u64>,
    /// It has a successor: no more streams are opened by this PEP.
    pub is_retired: bool,
    /// Nor by the other one.
    pub has_last: bool,
    pub renewal: Renewal,
    /// The pacing rate that its socket was last given.
    pub paced_bit_s: Option<u64>,
}

impl Leg {
    /// A connection that is tried at once if it `is_needed` and this PEP `connects`.
    pub(crate) fn new(connects: bool, is_needed: bool, retry_pause_ns: Option<u64>) -> Self {
        Self {
            connects,
            state: State::Down {
                at_ns: (connects && is_needed).then_some(0),
            },
            pause_ns: PAUSE_NS,
            end: None,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            padding_bytes: 0,
            streams: HashMap::new(),
            waiting: VecDeque::new(),
            next_id: u32::from(connects),
            retry_pause_ns,
            retry_at_ns: None,
            is_retired: false,
            has_last: false,
            renewal: Renewal::new(),
            paced_bit_s: None,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Up)
    }

    /// Whether it is about to be.
    pub(crate) fn is_beginning(&self) -> bool {
        matches!(self.state, State::Beginning { .. })
    }

    /// Try it soon if it is down.
    pub(crate) fn want(&mut self, now_ns: u64) {
        match &mut self.state {
            State::Down { at_ns } if self.connects => {
                at_ns.get_or_insert(now_ns);
            }
            _ => {}
        }
    }

    /// When something is to be done.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        match self.state {
            State::Down { at_ns } => at_ns,
            State::Beginning { until_ns } => Some(until_ns),
            State::Up => self.retry_at_ns,
        }
    }

    /// The socket may have room by now.
    pub(crate) fn retry(&mut self) {
        self.retry_at_ns = None;
        if let Some(end) = &mut self.end {
            end.writable = true;
        }
    }

    /// A connection begins, whose socket the epoll watches as the client's of connection `token`.
    pub(crate) fn begin(
        &mut self,
        epoll: &OwnedFd,
        socket: Socket,
        token: usize,
        now_ns: u64,
    ) -> io::Result<()> {
        self.end = Some(End::watch(epoll, socket, token, Peer::Client)?);
        self.state = State::Beginning {
            until_ns: now_ns + HELLO_NS,
        };
        self.send_message(Message::Hello);
        Ok(())
    }

    /// The connection is lost, or could not be made, or has ended: forget it. `is_tried_again`: after a pause, if this PEP
    /// connects. Returns the slots of its streams' connections.
    pub(crate) fn lose(&mut self, is_tried_again: bool, now_ns: u64) -> Vec<usize> {
        self.end = None;
        self.paced_bit_s = None;
        (self.is_retired, self.has_last) = (false, false);
        self.renewal = Renewal::new();
        self.incoming = Vec::new();
        self.outgoing = Vec::new();
        self.padding_bytes = 0;
        self.retry_at_ns = None;
        self.waiting.clear();
        self.state = State::Down {
            at_ns: (self.connects && is_tried_again).then_some(now_ns + self.pause_ns),
        };
        self.pause_ns = (2 * self.pause_ns).min(PAUSE_MAX_NS);
        self.streams.drain().map(|(_, slot)| slot).collect()
    }

    /// The other PEP has said hello. `padding_bytes` are sent to it before any payload: its kernel offers a window of 64 kB
    /// at first (`tcp_select_initial_window`), and two segments more for each that has come.
    ///
    /// # Errors
    /// It said hello before.
    pub(crate) fn on_hello(&mut self, padding_bytes: usize) -> Result<(), BadFrame> {
        if !matches!(self.state, State::Beginning { .. }) {
            return Err(BadFrame);
        }
        self.state = State::Up;
        self.pause_ns = PAUSE_NS;
        self.padding_bytes = padding_bytes;
        Ok(())
    }

    /// Whether it is to have a successor. `window_segments`: the initial congestion window. To be called often.
    pub(crate) fn is_due_for_renewal(&mut self, window_segments: Option<u32>, now_ns: u64) -> bool {
        let is_idle = self.is_up()
            && !self.is_retired
            && self.streams.is_empty()
            && self.unsent_bytes() + self.padding_bytes == 0;
        let idle = self.end.as_ref().filter(|_| is_idle);
        let progress = idle.and_then(End::progress);
        self.renewal.is_due(progress, window_segments, now_ns)
    }

    /// Ask the other PEP for a successor, once.
    pub(crate) fn request_renewal(&mut self) {
        if !std::mem::replace(&mut self.renewal.is_requested_here, true) {
            self.send_message(Message::Renew);
        }
    }

    /// Its successor is up.
    pub(crate) fn retire(&mut self) {
        self.is_retired = true;
        if !self.connects {
            self.send_message(Message::Last);
        }
    }

    /// End it if it has a successor and can have no more streams: the other PEP reads to the end, and closes it.
    pub(crate) fn finish(&mut self) {
        let is_over =
            self.is_retired && self.has_last && self.streams.is_empty() && self.unsent_bytes() == 0;
        if let Some(end) = self.end.as_mut().filter(|_| is_over) {
            end.shut_down();
        }
    }

    /// A number for a new stream of the connection in `slot`.
    pub(crate) fn open(&mut self, slot: usize) -> u32 {
        let id = self.next_id;
        self.next_id = id.wrapping_add(2);
        self.record_opened(id, slot);
        id
    }

    /// Whether the other PEP may open a stream of this number: those of the PEP that connects are odd, and it is none that
    /// there is.
    pub(crate) fn may_be_opened(&self, id: u32) -> bool {
        id % 2 != u32::from(self.connects) && !self.streams.contains_key(&id)
    }

    /// A stream is open.
    pub(crate) fn record_opened(&mut self, id: u32, slot: usize) {
        self.renewal.note_use();
        self.streams.insert(id, slot);
    }

    pub(crate) fn slot(&self, id: u32) -> Option<usize> {
        self.streams.get(&id).copied()
    }

    /// A stream is over.
    pub(crate) fn close(&mut self, stream: &mut Stream, budget: &mut Budget) {
        self.streams.remove(&stream.id);
        stream.close(budget);
    }

    pub(crate) fn streams(&self) -> usize {
        self.streams.len()
    }

    /// A stream wants to send.
    pub(crate) fn queue(&mut self, slot: usize, id: u32) {
        self.waiting.push_back((slot, id));
    }

    /// Whose turn it is: a connection's slot and its stream, if there is room for a frame.
    pub(crate) fn next_turn(&mut self) -> Option<(usize, u32)> {
        while self.unsent_bytes() < OUTGOING_BYTES {
            if self.padding_bytes == 0 {
                return self.waiting.pop_front();
            }
            let count = self.padding_bytes.min(PAYLOAD_BYTES);
            self.padding_bytes -= count;
            let message = Message::Padding(&[0; PAYLOAD_BYTES][..count]);
            self.send_message(message);
        }
        None
    }

    pub(crate) fn unsent_bytes(&self) -> usize {
        self.outgoing.len()
    }

    /// Whether it is to be read.
    fn may_read(&self) -> bool {
        self.unsent_bytes() < OUTGOING_MAX_BYTES
    }

    /// Say something that is of no stream.
    fn send_message(&mut self, message: Message<'_>) {
        let frame = Frame { stream: 0, message };
        frame.put(&mut self.outgoing);
    }

    /// Whether it has something to send, by turns or of its own, or its socket has.
    pub(crate) fn has_backlog(&self) -> bool {
        let is_empty = self.waiting.is_empty() && self.unsent_bytes() + self.padding_bytes == 0;
        let is_sent = || {
            let progress = self.end.as_ref().and_then(End::progress);
            progress.is_none_or(|progress| progress.unsent_bytes == 0)
        };
        self.is_up() && !(is_empty && is_sent())
    }

    /// Have its socket paced at this rate. What it has in flight is not affected.
    pub(crate) fn pace(&mut self, bit_s: u64) {
        let is_new = self.paced_bit_s != Some(bit_s);
        let Some(end) = self.end.as_ref().filter(|_| is_new) else {
            return;
        };
        let paced = end
            .descriptor()
            .map_err(io::Error::from)
            .and_then(|socket| set_max_pacing_rate(socket, bit_s / 8));
        self.paced_bit_s = paced.is_ok().then_some(bit_s);
    }

    /// The kernel reports something of its socket.
    pub(crate) fn on_events(&mut self, events: EventFlags) {
        if let Some(end) = &mut self.end {
            end.on_events(events);
        }
    }

    /// Send what the socket takes; whether it took everything. A socket that has failed takes nothing more: it is read to
    /// its end.
    pub(crate) fn flush(&mut self, now_ns: u64) -> bool {
        let Some(end) = &mut self.end else {
            return false;
        };
        while end.writable && !self.outgoing.is_empty() {
            let sent = end
                .descriptor()
                .and_then(|socket| send(socket, &self.outgoing, SendFlags::NOSIGNAL));
            match sent {
                Ok(taken) => drop(self.outgoing.drain(..taken)),
                Err(Errno::AGAIN) => {
                    end.writable = false;
                    self.retry_at_ns = self.retry_pause_ns.map(|pause_ns| now_ns + pause_ns);
                }
                Err(Errno::INTR) => {}
                Err(error) => {
                    end.fail(Failure::of(&error.into()));
                    (end.readable, end.writable) = (true, false);
                }
            }
        }
        end.writable && self.outgoing.is_empty()
    }

    /// Read what has come, a bounded amount; none if there is nothing. The bytes go back to [`Leg::keep`].
    ///
    /// # Errors
    /// The connection has ended, and all that came was returned before.
    pub(crate) fn read(&mut self) -> Result<Option<Vec<u8>>, Lost> {
        let may_read = self.may_read();
        let Some(end) = self.end.as_mut().filter(|end| may_read && end.readable) else {
            return Ok(None);
        };
        let mut bytes = std::mem::take(&mut self.incoming);
        let before = bytes.len();
        let is_over = end.ending || end.failure.is_some();
        while bytes.len() - before < TURN_BYTES {
            bytes.reserve(INCOMING_BYTES);
            let requested = bytes.capacity() - bytes.len();
            let read = end
                .descriptor()
                .and_then(|socket| recv(socket, spare_capacity(&mut bytes), RecvFlags::empty()));
            let count = match read {
                Ok((count, _)) if count > 0 => count,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) if end.failure.is_none() => {
                    end.readable = false;
                    break;
                }
                _ if bytes.len() == before => return Err(None),
                // The next call finds the end again.
                _ => break,
            };
            if count < requested {
                // Its next bytes are an event of their own (epoll(7)); an end behind them already is none.
                end.readable = is_over;
                break;
            }
        }
        Ok(Some(bytes))
    }

    /// Keep what was read and is no whole frame yet: the bytes from `start` on.
    pub(crate) fn keep(&mut self, mut bytes: Vec<u8>, start: usize) {
        bytes.drain(..start);
        self.incoming = bytes;
    }

    /// Whether there is more to read at once.
    pub(crate) fn has_more(&self) -> bool {
        self.may_read() && self.end.as_ref().is_some_and(|end| end.readable)
    }
}
