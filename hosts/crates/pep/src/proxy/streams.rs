// SPDX-License-Identifier: Apache-2.0
//! Connections whose one end is a stream of a multiplexed connection: frames in, frames out, turns.

use super::Proxy;
use crate::config::Side;
use crate::connection::{Addresses, Carried, Connection, Stage};
use crate::end::{End, Failure, Peer, Reading};
use crate::multiplex::credit::{FIRST_CREDIT, Window};
use crate::multiplex::frame::{BadFrame, Frame, Message};
use crate::multiplex::leg::{self, Leg, Lost};
use crate::multiplex::stream::Stream;
use crate::refusal::Refusal;
use crate::sockets::{connect, set_up_multiplexed};
use atoll_job::log_line;
use rustix::event::epoll::EventFlags;
use socket2::Socket;

impl Proxy {
    /// Whether a new connection towards `side` is to be a stream. If the multiplexed connection is not up, it is tried, and
    /// connections are split one by one meanwhile.
    pub(super) fn is_multiplexed(&mut self, pair: usize, side: Side, now_ns: u64) -> bool {
        if self
            .config
            .between
            .is_none_or(|between| between.side != side)
        {
            return false;
        }
        self.legs[pair].want(now_ns);
        self.legs[pair].is_up()
    }

    /// Whether these are addresses of the other PEP's multiplexed connection, which arrives at `side`.
    pub(super) fn is_from_peer(&self, side: Side, addresses: Addresses) -> bool {
        let between = self.config.between.filter(|between| between.side == side);
        between.is_some_and(|between| between.is_from_peer(addresses))
    }

    /// Ask the other PEP for the server of a new connection.
    pub(super) fn open_stream(&mut self, slot: usize) {
        let connection = &mut self.connections[slot];
        let (pair, (client, server)) = (connection.pair, connection.addresses);
        let leg = &mut self.legs[pair];
        let id = leg.open(slot);
        let mut window = Window::default();
        let credit = window.first_credit(&mut self.budget, leg.streams());
        let stream = Stream::new((pair, id), Peer::Server, FIRST_CREDIT, window);
        let open = Message::Open {
            client,
            server,
            credit,
        };
        stream.put(open, leg.outgoing());
        connection.stream = Some(stream);
    }

    /// The other PEP asks for a server.
    fn accept_stream(
        &mut self,
        pair: usize,
        id: u32,
        addresses: Addresses,
        credit: u32,
        now_ns: u64,
    ) {
        let begun = self.begin_for_peer(pair, addresses, now_ns);
        let slot = match begun {
            Ok(slot) => slot,
            Err(refusal) => {
                let message = Message::Refused(refusal);
                return self.legs[pair].put(Frame {
                    stream: id,
                    message,
                });
            }
        };
        self.legs[pair].note_opened(id, slot);
        let window = Window::of_opened(&mut self.budget);
        let connection = &mut self.connections[slot];
        let stream = Stream::new((pair, id), Peer::Client, u64::from(credit), window);
        connection.stream = Some(stream);
        connection.client = Some(End::of_stream(slot, Peer::Client));
        connection.stage = Stage::Connecting {
            first: None,
            released: true,
        };
    }

    fn begin_for_peer(
        &mut self,
        pair: usize,
        addresses: Addresses,
        now_ns: u64,
    ) -> Result<usize, Refusal> {
        let Some(between) = self.config.between else {
            return Err(Refusal::Unanswered);
        };
        let (client, server) = addresses;
        if !self.are_hosts(between.side, addresses) || self.slots.contains_key(&addresses) {
            return Err(Refusal::Unanswered);
        }
        if !self.has_room(now_ns) {
            self.sums.ignored_syns += 1;
            return Err(Refusal::Unanswered);
        }
        let slot = self.connections.vacant_key();
        let server = connect(&self.config, pair, between.side.opposite(), client, server)
            .and_then(|socket| End::watch(&self.plumbing.epoll, socket, slot, Peer::Server))
            .map_err(|error| {
                let refusal = Refusal::of(&error);
                self.count_refusal(refusal);
                refusal
            })?;
        self.insert(addresses, (pair, between.side), server, now_ns);
        Ok(slot)
    }

    /// Tell the other PEP how its server has answered.
    pub(super) fn answer_stream(&mut self, slot: usize, answer: Result<(), Refusal>) {
        let Some(Carried { stream, .. }) = self.connections[slot].carried() else {
            return;
        };
        let leg = &mut self.legs[stream.pair];
        match (stream.of, answer) {
            (Peer::Client, Ok(())) => {
                let credit = stream.first_credit(&mut self.budget, leg.streams());
                stream.put(Message::Ok { credit }, leg.outgoing());
            }
            (Peer::Client, Err(refusal)) => {
                stream.refuse(refusal, leg.outgoing());
                leg.close(stream, &mut self.budget);
            }
            (Peer::Server, Ok(())) => {}
            (Peer::Server, Err(_)) => leg.close(stream, &mut self.budget),
        }
    }

    /// Something has happened to a connection: if it has a stream, say what is due, and have it wait for a turn if it has
    /// something to send.
    pub(super) fn follow(&mut self, slot: usize) {
        let Some(mut carried) = self.connections[slot].carried() else {
            return;
        };
        let leg = &mut self.legs[carried.stream.pair];
        let left = carried.back.rest_bytes();
        if leg.is_up() {
            let budget = &mut self.budget;
            carried
                .stream
                .tell(carried.own, left, budget, leg.outgoing());
            if carried.joins_queue() {
                leg.queue(slot, carried.stream.id);
            }
        }
    }

    /// A connection is over: so is its stream.
    pub(super) fn close_stream(&mut self, connection: &mut Connection) {
        if let Some(carried) = connection.carried() {
            let leg = &mut self.legs[carried.stream.pair];
            carried.stream.end(carried.own, leg.outgoing());
            leg.close(carried.stream, &mut self.budget);
        }
    }

    /// The other PEP connects.
    pub(super) fn accept_leg(&mut self, pair: usize, socket: Socket, now_ns: u64) {
        self.lose(pair, None, now_ns);
        self.begin_leg(pair, socket, now_ns);
    }

    fn begin_leg(&mut self, pair: usize, socket: Socket, now_ns: u64) {
        let slot = leg::FIRST_SLOT + pair;
        let begun = set_up_multiplexed(&self.config, &socket)
            .and_then(|()| self.legs[pair].begin(&self.plumbing.epoll, socket, slot, now_ns));
        if begun.is_err() {
            self.lose(pair, None, now_ns);
        }
    }

    /// The kernel reports something of a multiplexed connection.
    pub(super) fn note_leg(&mut self, pair: usize, flags: EventFlags) {
        if let Some(leg) = self.legs.get_mut(pair) {
            leg.note(flags);
        }
    }

    /// When a multiplexed connection is to be tried, or given up.
    pub(super) fn legs_due_ns(&self) -> Option<u64> {
        self.legs.iter().filter_map(Leg::due_ns).min()
    }

    /// Try multiplexed connections, and give up those that the other PEP does not answer. Try full sockets again.
    pub(super) fn tend_legs(&mut self, now_ns: u64) {
        let Some(between) = self.config.between else {
            return;
        };
        for pair in 0..self.legs.len() {
            if self.legs[pair]
                .due_ns()
                .is_none_or(|due_ns| due_ns > now_ns)
            {
                continue;
            }
            if self.legs[pair].is_up() {
                self.legs[pair].retry();
                continue;
            }
            self.lose(pair, None, now_ns);
            if between.connects() && self.legs[pair].end().is_none() {
                let (client, server) = between.addresses(pair);
                if let Ok(socket) = connect(&self.config, pair, between.side, client, server) {
                    self.begin_leg(pair, socket, now_ns);
                }
            }
        }
    }

    /// A multiplexed connection is gone, and with it its streams: their connections are reset behind what has come.
    fn lose(&mut self, pair: usize, why: Lost, now_ns: u64) {
        let leg = &mut self.legs[pair];
        if leg.is_up() {
            self.sums.multiplex_losses += 1;
        }
        if let Some(error) = why {
            log_line(&format!(
                "the connection to the other PEP is given up: {error}"
            ));
        }
        for slot in leg.lose(now_ns) {
            let connection = &mut self.connections[slot];
            if let Some(carried) = connection.carried() {
                carried.stream.close(&mut self.budget);
                carried.own.break_off(Failure::Cut);
            }
            self.note_change(slot);
        }
    }

    /// Read what has come by multiplexed connections, a bounded amount.
    pub(super) fn receive_frames(&mut self, now_ns: u64) {
        for pair in 0..self.legs.len() {
            if let Err(why) = self.receive(pair, now_ns) {
                self.lose(pair, why, now_ns);
            }
        }
    }

    /// Send what is due and what streams have, as long as the sockets take it.
    pub(super) fn send_frames(&mut self, now_ns: u64) {
        for pair in 0..self.legs.len() {
            self.send(pair, now_ns);
        }
    }

    fn receive(&mut self, pair: usize, now_ns: u64) -> Result<(), Lost> {
        let Some(bytes) = self.legs[pair].read()? else {
            return Ok(());
        };
        let mut at = 0;
        while let Some((frame, length)) = Frame::parse(&bytes[at..]).map_err(Some)? {
            self.take_frame(pair, frame, now_ns).map_err(Some)?;
            at += length;
        }
        self.legs[pair].keep(bytes, at);
        Ok(())
    }

    /// Give streams their turns while the socket takes frames.
    fn send(&mut self, pair: usize, now_ns: u64) {
        loop {
            while let Some((slot, id)) = self.legs[pair].next_turn() {
                self.send_frame(slot, id);
            }
            let leg = &mut self.legs[pair];
            if leg.unsent_bytes() == 0 || !leg.flush(now_ns) {
                return;
            }
        }
    }

    fn send_frame(&mut self, slot: usize, id: u32) {
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        let Some(carried) = connection.carried().filter(|one| one.stream.id == id) else {
            return;
        };
        carried.stream.is_queued = false;
        let Some(socket) = carried
            .socket
            .filter(|socket| carried.stream.wants_turn(socket))
        else {
            return;
        };
        let leg = &mut self.legs[carried.stream.pair];
        let ends = (socket, carried.own);
        carried.stream.send(ends, carried.out, leg.outgoing());
        connection.count(&mut self.sums);
        self.note_change(slot);
        self.follow(slot);
    }

    /// A connection is to be looked at.
    fn note_change(&mut self, slot: usize) {
        let connection = &self.connections[slot];
        if connection.is_established() {
            self.enqueue(slot);
        } else if connection.is_pending() && connection.has_failed() {
            self.give_up(slot);
        }
    }

    /// # Errors
    /// The other PEP must not say this.
    fn take_frame(&mut self, pair: usize, frame: Frame<'_>, now_ns: u64) -> Result<(), BadFrame> {
        let Frame { stream, message } = frame;
        match message {
            Message::Hello => {
                let padding = self.config.between.map_or(0, |one| one.padding_bytes);
                return self.legs[pair].greet(padding as usize);
            }
            _ if !self.legs[pair].is_up() => return Err(BadFrame),
            Message::Padding(_) => return Ok(()),
            Message::Open {
                client,
                server,
                credit,
            } => {
                if !self.legs[pair].may_be_opened(stream) {
                    return Err(BadFrame);
                }
                self.accept_stream(pair, stream, (client, server), credit, now_ns);
                return Ok(());
            }
            _ => {}
        }
        // Frames of a stream that has ended here cross the one that says so.
        let Some(slot) = self.legs[pair].slot(stream) else {
            return Ok(());
        };
        let connection = &mut self.connections[slot];
        if matches!(connection.stage, Stage::Over) {
            return Ok(());
        }
        let is_asked = matches!(connection.stage, Stage::Connecting { .. });
        let Some(carried) = connection.carried() else {
            return Ok(());
        };
        let is_asked = is_asked && carried.stream.of == Peer::Server;
        match message {
            Message::Ok { credit } if is_asked => {
                carried.stream.add_credit(credit);
                self.note_answer(slot, Ok(()), now_ns);
            }
            Message::Refused(refusal) if is_asked => {
                self.note_answer(slot, Err(refusal), now_ns);
                return Ok(());
            }
            Message::Data(payload) if carried.own.reading == Reading::Open => {
                let (socket, back) = (carried.socket, carried.back);
                let received = carried
                    .stream
                    .receive(payload, socket, back, &mut self.plumbing);
                received.map_err(|_| BadFrame)?;
                connection.count(&mut self.sums);
            }
            Message::Fin if carried.own.reading == Reading::Open => {
                carried.own.reading = Reading::Finished;
            }
            Message::Rst => {
                self.legs[pair].close(carried.stream, &mut self.budget);
                carried.own.break_off(Failure::Reset);
            }
            Message::Credit(credit) => carried.stream.add_credit(credit),
            _ => return Err(BadFrame),
        }
        self.note_change(slot);
        self.follow(slot);
        Ok(())
    }
}
