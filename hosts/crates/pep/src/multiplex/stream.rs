// SPDX-License-Identifier: Apache-2.0
//! A connection's stream in a multiplexed connection: what it may send, and what the other PEP may send of it.

use crate::end::{End, Peer, Reading};
use crate::multiplex::credit::{Budget, Exceeded, Window};
use crate::multiplex::frame::{Frame, Message, PAYLOAD_BYTES, data_header};
use crate::transfer::{Direction, Plumbing};

/// The stream of a connection.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The number of its multiplexed connection.
    pub leg: usize,
    pub id: u32,
    /// In whose place it is.
    pub of: Peer,
    /// It is in the queue for a turn.
    pub is_queued: bool,
    /// Payload that may be sent.
    credit: u64,
    window: Window,
    /// The other PEP knows that this end has ended, or there is nothing to end.
    has_sent_end: bool,
    /// It is over for both PEPs, whatever is left of its connection.
    pub is_closed: bool,
    pub received_bytes: u64,
}

impl Stream {
    /// `of`: in whose place it is. `credit`: what may be sent.
    pub(crate) fn new((leg, id): (usize, u32), of: Peer, credit: u64, window: Window) -> Self {
        Self {
            leg,
            id,
            of,
            is_queued: false,
            credit,
            window,
            has_sent_end: false,
            is_closed: false,
            received_bytes: 0,
        }
    }

    /// The other PEP promises more.
    pub(crate) fn add_credit(&mut self, credit: u32) {
        self.credit += u64::from(credit);
    }

    /// Raise what the other PEP may send, the server having accepted; returns the increase.
    pub(crate) fn first_credit(&mut self, budget: &mut Budget, streams: usize) -> u32 {
        self.window.first_credit(budget, streams)
    }

    /// Whether the socket has something to send that the stream may.
    pub(crate) fn wants_turn(&self, socket: &End) -> bool {
        socket.readable && socket.reading == Reading::Open && self.credit > 0
    }

    /// Send a frame of the bytes that the socket has.
    pub(crate) fn send(
        &mut self,
        (socket, own): (&mut End, &mut End),
        direction: &mut Direction,
        out: &mut Vec<u8>,
    ) {
        let limit = self.credit.min(PAYLOAD_BYTES as u64) as usize;
        let id = self.id;
        let sent = direction.frame(socket, limit, out, |bytes| data_header(id, bytes));
        self.credit -= sent as u64;
        if socket.reading == Reading::Finished {
            own.shut_down();
        }
    }

    /// Pass on received bytes to the socket.
    ///
    /// # Errors
    /// The other PEP may not send as much.
    pub(crate) fn receive(
        &mut self,
        payload: &[u8],
        socket: Option<&mut End>,
        direction: &mut Direction,
        plumbing: &mut Plumbing,
    ) -> Result<(), Exceeded> {
        self.window.receive(payload.len() as u64)?;
        self.received_bytes += payload.len() as u64;
        direction.push(payload, socket, plumbing);
        Ok(())
    }

    /// Report to the other PEP what is due: that more may be sent, `held` bytes being in memory, or that the stream has ended.
    pub(crate) fn report(&mut self, own: &End, held: u64, budget: &mut Budget, out: &mut Vec<u8>) {
        self.window.deliver(held, budget);
        if own.reading == Reading::Open {
            let credit = self.window.raise(budget);
            if credit > 0 {
                self.put(Message::Credit(credit), out);
            }
        }
        if own.is_shut && !self.has_sent_end {
            self.has_sent_end = true;
            self.put(Message::Fin, out);
        }
    }

    /// It is over, and no message about it is due. Its bytes may still be on its way to the socket.
    pub(crate) fn close(&mut self, budget: &mut Budget) {
        self.is_closed = true;
        self.window.close(budget);
    }

    /// The connection has ended: reset the stream, unless it has ended on both sides.
    pub(crate) fn end(&self, own: &End, out: &mut Vec<u8>) {
        let has_ended = self.has_sent_end && own.reading == Reading::Finished;
        if !has_ended {
            self.put(Message::Rst, out);
        }
    }

    /// Put a message about it into `out`.
    pub(crate) fn put(&self, message: Message<'_>, out: &mut Vec<u8>) {
        let stream = self.id;
        Frame { stream, message }.put(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_has_ended_is_promised_nothing_more() {
        let mut budget = Budget::new(1 << 28, 1 << 16);
        let mut window = Window::default();
        window.first_credit(&mut budget, 1);
        window.receive(1 << 16).unwrap();
        let mut stream = Stream::new((0, 1), Peer::Server, 0, window);
        let mut own = End::of_stream(0, Peer::Server);
        own.reading = Reading::Finished;
        stream.report(&own, 0, &mut budget, &mut Vec::new());
        assert_eq!(budget.promised, 0);
    }
}
