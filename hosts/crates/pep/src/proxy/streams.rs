// SPDX-License-Identifier: Apache-2.0
//! Connections whose one end is a stream of a multiplexed connection: frames in, frames out, turns.

use super::Proxy;
use crate::config::{Between, LEGS_MAX, PAIRS_MAX, Side};
use crate::connection::{Addresses, Connection, Stage, StreamParts};
use crate::end::{End, Failure, Peer, Reading};
use crate::first_segment::Refusal;
use crate::multiplex::credit::{FIRST_CREDIT, Window};
use crate::multiplex::frame::{BadFrame, Frame, Message};
use crate::multiplex::leg::{self, Lost};
use crate::multiplex::renewal::Renewal;
use crate::multiplex::stream::Stream;
use crate::sockets::{connect, set_up_multiplexed};
use atoll_job::log_line;
use socket2::Socket;

impl Proxy {
    /// Whether a new connection towards `side` is to be a stream. If the multiplexed connection is not up, it is tried, and
    /// connections are split one by one meanwhile.
    pub(super) fn is_multiplexed(&mut self, pair: usize, side: Side, now_ns: u64) -> bool {
        if self.config.between.is_none_or(|b| b.side != side) {
            return false;
        }
        self.use_pair(pair, now_ns);
        let leg = &mut self.legs[self.current[pair]];
        leg.want(now_ns);
        leg.is_up()
    }

    /// A connection has come by this pair of legs. A multiplexed connection that is still being made by the other pair would
    /// take the place of this one's at a PEP which has one pair.
    fn use_pair(&mut self, pair: usize, now_ns: u64) {
        let is_other = std::mem::replace(&mut self.pair, pair) != pair;
        if !is_other || self.config.between.is_none_or(|b| !b.connects()) {
            return;
        }
        for leg in 0..self.legs.len() {
            if leg % PAIRS_MAX != pair && self.legs[leg].is_beginning() {
                self.lose(leg, None, now_ns);
            }
        }
    }

    /// The multiplexed connection of `pair` with these addresses of the other PEP's, which arrives at `side`; none: it is
    /// none.
    pub(super) fn leg_of(&self, pair: usize, side: Side, addresses: Addresses) -> Option<usize> {
        let between = self.config.between.filter(|b| b.side == side);
        let of_peer = between?.leg_of(addresses)?;
        Some(of_peer / PAIRS_MAX * PAIRS_MAX + pair)
    }

    /// Ask the other PEP for the server of a new connection.
    pub(super) fn open_stream(&mut self, slot: usize) {
        let connection = &mut self.connections[slot];
        let (client, server) = connection.addresses;
        let number = self.current[connection.pair];
        let leg = &mut self.legs[number];
        let id = leg.open(slot);
        let mut window = Window::default();
        let credit = window.first_credit(&mut self.budget, leg.streams());
        let stream = Stream::new((number, id), Peer::Server, FIRST_CREDIT, window);
        let open = Message::Open {
            client,
            server,
            credit,
        };
        stream.put(open, &mut leg.outgoing);
        connection.stream = Some(stream);
    }

    /// The other PEP asks for a server.
    fn accept_stream(
        &mut self,
        leg: usize,
        id: u32,
        addresses: Addresses,
        credit: u32,
        now_ns: u64,
    ) {
        let result = self.begin_for_peer(leg % PAIRS_MAX, addresses, now_ns);
        let slot = match result {
            Ok(slot) => slot,
            Err(refusal) => {
                let (stream, message) = (id, Message::Refused(refusal));
                return Frame { stream, message }.put(&mut self.legs[leg].outgoing);
            }
        };
        self.use_pair(leg % PAIRS_MAX, now_ns);
        self.legs[leg].record_opened(id, slot);
        let window = Window::of_opened(&mut self.budget);
        let connection = &mut self.connections[slot];
        let stream = Stream::new((leg, id), Peer::Client, u64::from(credit), window);
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
        if !self.are_hosts(between.side, addresses) || self.slots.contains_key(&addresses) {
            return Err(Refusal::Unanswered);
        }
        if !self.has_room(addresses.1, now_ns) {
            self.sums.ignored_syns += 1;
            return Err(Refusal::Unanswered);
        }
        let slot = self.connections.vacant_key();
        let route = (pair, between.side.opposite(), addresses);
        let connected = self.connect_server(slot, route, false);
        let server = connected.map_err(|error| {
            let refusal = Refusal::of(&error);
            self.count_refusal(refusal);
            refusal
        })?;
        self.insert(addresses, (pair, between.side), server, now_ns);
        Ok(slot)
    }

    /// Tell the other PEP how its server has answered.
    pub(super) fn answer_stream(&mut self, slot: usize, answer: Result<(), Refusal>) {
        let Some(StreamParts { stream, .. }) = self.connections[slot].stream_parts() else {
            return;
        };
        let leg = &mut self.legs[stream.leg];
        match (stream.of, answer) {
            (Peer::Client, Ok(())) => {
                let credit = stream.first_credit(&mut self.budget, leg.streams());
                stream.put(Message::Ok { credit }, &mut leg.outgoing);
            }
            (Peer::Client, Err(refusal)) => {
                stream.put(Message::Refused(refusal), &mut leg.outgoing);
                leg.close(stream, &mut self.budget);
            }
            (Peer::Server, Ok(())) => {}
            (Peer::Server, Err(_)) => leg.close(stream, &mut self.budget),
        }
    }

    /// Something has happened to a connection: if it has a stream, send the messages that are due, and have it wait for a turn if it has
    /// something to send.
    pub(super) fn update_stream(&mut self, slot: usize) {
        let Some(mut parts) = self.connections[slot].stream_parts() else {
            return;
        };
        let leg = &mut self.legs[parts.stream.leg];
        let pending_bytes = parts.back.pending_bytes();
        if leg.is_up() {
            let budget = &mut self.budget;
            parts
                .stream
                .report(parts.own, pending_bytes, budget, &mut leg.outgoing);
            if parts.joins_queue() {
                leg.queue(slot, parts.stream.id);
            }
        }
    }

    /// A connection is over: so is its stream.
    pub(super) fn close_stream(&mut self, connection: &mut Connection) {
        if let Some(parts) = connection.stream_parts() {
            let leg = &mut self.legs[parts.stream.leg];
            parts.stream.end(parts.own, &mut leg.outgoing);
            leg.close(parts.stream, &mut self.budget);
        }
    }

    /// The other PEP connects.
    pub(super) fn accept_leg(&mut self, leg: usize, socket: Socket, now_ns: u64) {
        self.lose(leg, None, now_ns);
        self.begin_leg(leg, socket, now_ns);
    }

    fn begin_leg(&mut self, leg: usize, socket: Socket, now_ns: u64) {
        let slot = leg::FIRST_SLOT + leg;
        let result = set_up_multiplexed(&self.config, &socket)
            .and_then(|()| self.legs[leg].begin(&self.plumbing.epoll, socket, slot, now_ns));
        if result.is_err() {
            self.lose(leg, None, now_ns);
        }
    }

    /// Try multiplexed connections, and give up those that the other PEP does not answer. Try full sockets again.
    pub(super) fn retry_legs(&mut self, now_ns: u64) {
        let Some(between) = self.config.between else {
            return;
        };
        for leg in 0..self.legs.len() {
            if self.legs[leg].due_ns().is_none_or(|due_ns| due_ns > now_ns) {
                continue;
            }
            if self.legs[leg].is_up() {
                self.legs[leg].retry();
                continue;
            }
            self.lose(leg, None, now_ns);
            let is_used = leg % PAIRS_MAX == self.pair && self.current[self.pair] == leg;
            if between.connects() && is_used {
                self.connect_leg(leg, between, now_ns);
            }
        }
    }

    fn connect_leg(&mut self, leg: usize, between: Between, now_ns: u64) {
        let (pair, addresses) = (leg % PAIRS_MAX, between.addresses(leg));
        if let Ok(socket) = connect(&self.config, pair, between.side, addresses, false) {
            self.begin_leg(leg, socket, now_ns);
        }
    }

    /// Renew idle connections whose congestion window has become small.
    pub(super) fn renew_legs(&mut self, now_ns: u64) {
        let Some(between) = self.config.between else {
            return;
        };
        for leg in self.current {
            if !self.legs[leg].is_due_for_renewal(between.window_segments, now_ns) {
                continue;
            }
            let successor = (leg + PAIRS_MAX) % LEGS_MAX;
            if !between.connects() {
                self.legs[leg].request_renewal();
            } else if self.legs[successor].end.is_none() {
                let pause_ns = self.legs[leg].renewal.begin();
                self.legs[successor].renewal = Renewal::with_pause(pause_ns);
                self.connect_leg(successor, between, now_ns);
            }
        }
    }

    /// A connection is up, and new streams are opened there.
    fn promote(&mut self, leg: usize) {
        let former = std::mem::replace(&mut self.current[leg % PAIRS_MAX], leg);
        if former != leg && self.legs[former].is_up() {
            self.legs[former].retire();
        }
    }

    /// A multiplexed connection is gone, and with it its streams: their connections are reset behind what has come.
    fn lose(&mut self, leg: usize, reason: Lost, now_ns: u64) {
        let current = &mut self.current[leg % PAIRS_MAX];
        let successor = (leg + PAIRS_MAX) % LEGS_MAX;
        if *current == leg && self.legs[successor].is_beginning() {
            *current = successor;
        }
        let is_tried_again = *current == leg && leg % PAIRS_MAX == self.pair;
        let leg = &mut self.legs[leg];
        if leg.is_up() && !leg.is_retired {
            self.sums.multiplex_losses += 1;
        }
        // What has ended on both sides has been passed on by the other PEP, which ends a connection with a successor.
        let end = leg.end.as_ref();
        let has_failed = end.is_none_or(|end| end.failure.is_some());
        let is_over = leg.is_retired && reason.is_none() && !has_failed;
        if let Some(error) = reason {
            log_line(&format!(
                "the connection to the other PEP is given up: {error}"
            ));
        }
        for slot in leg.lose(is_tried_again, now_ns) {
            let connection = &mut self.connections[slot];
            if let Some(parts) = connection.stream_parts() {
                parts.stream.close(&mut self.budget);
                if !(is_over && parts.own.has_ended()) {
                    parts.own.abort(Failure::Cut);
                }
            }
            self.note_change(slot);
        }
    }

    /// Read from multiplexed connections, a bounded amount.
    pub(super) fn receive_frames(&mut self, now_ns: u64) {
        for leg in 0..self.legs.len() {
            if let Err(reason) = self.receive(leg, now_ns) {
                self.lose(leg, reason, now_ns);
            }
        }
    }

    /// Send due messages and the bytes of streams, as long as the sockets take it.
    pub(super) fn send_frames(&mut self, now_ns: u64) {
        self.share_rate();
        for leg in 0..self.legs.len() {
            self.send(leg, now_ns);
        }
    }

    /// A connection and its successor share the rate while both have something to send: each alone has all of it.
    fn share_rate(&mut self) {
        let Some(bit_s) = self.config.between.and_then(|b| b.pacing_bit_s) else {
            return;
        };
        for pair in 0..PAIRS_MAX {
            let legs = [pair, (pair + PAIRS_MAX) % LEGS_MAX];
            let are_up = legs.iter().all(|&leg| self.legs[leg].is_up());
            let is_shared = are_up && legs.iter().all(|&leg| self.legs[leg].has_backlog());
            for leg in legs {
                self.legs[leg].pace(if is_shared { bit_s / 2 } else { bit_s });
            }
        }
    }

    fn receive(&mut self, leg: usize, now_ns: u64) -> Result<(), Lost> {
        let Some(bytes) = self.legs[leg].read()? else {
            return Ok(());
        };
        let mut offset = 0;
        while let Some((frame, length)) = Frame::parse(&bytes[offset..]).map_err(Some)? {
            self.on_frame(leg, frame, now_ns).map_err(Some)?;
            offset += length;
        }
        self.legs[leg].keep(bytes, offset);
        Ok(())
    }

    /// Give streams their turns while the socket takes frames.
    fn send(&mut self, leg: usize, now_ns: u64) {
        loop {
            while let Some((slot, id)) = self.legs[leg].next_turn() {
                self.send_frame(slot, id);
            }
            let leg = &mut self.legs[leg];
            if leg.unsent_bytes() == 0 || !leg.flush(now_ns) {
                break;
            }
        }
        self.legs[leg].finish();
    }

    fn send_frame(&mut self, slot: usize, id: u32) {
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        let Some(parts) = connection.stream_parts().filter(|one| one.stream.id == id) else {
            return;
        };
        parts.stream.is_queued = false;
        let Some(socket) = parts
            .socket
            .filter(|socket| parts.stream.wants_turn(socket))
        else {
            return;
        };
        let leg = &mut self.legs[parts.stream.leg];
        let ends = (socket, parts.own);
        parts.stream.send(ends, parts.out, &mut leg.outgoing);
        connection.count(&mut self.sums);
        self.note_change(slot);
        self.update_stream(slot);
    }

    /// A connection is to be looked at.
    fn note_change(&mut self, slot: usize) {
        let connection = &self.connections[slot];
        if connection.is_established() {
            self.enqueue(slot);
        } else if connection.is_pending() && connection.cannot_be_established() {
            self.give_up(slot);
        }
    }

    /// # Errors
    /// The other PEP must not say this.
    fn on_frame(&mut self, leg: usize, frame: Frame<'_>, now_ns: u64) -> Result<(), BadFrame> {
        let Frame { stream, message } = frame;
        match message {
            Message::Hello => {
                let padding = self.config.between.map_or(0, |b| b.padding_bytes);
                self.legs[leg].on_hello(padding as usize)?;
                self.promote(leg);
                return Ok(());
            }
            _ if !self.legs[leg].is_up() => return Err(BadFrame),
            Message::Padding(_) => return Ok(()),
            Message::Renew => {
                self.legs[leg].renewal.is_requested_there = true;
                return Ok(());
            }
            Message::Last => {
                self.legs[leg].has_last = true;
                return Ok(());
            }
            Message::Open {
                client,
                server,
                credit,
            } => {
                if !self.legs[leg].may_be_opened(stream) {
                    return Err(BadFrame);
                }
                self.accept_stream(leg, stream, (client, server), credit, now_ns);
                return Ok(());
            }
            _ => {}
        }
        // Frames of a stream that has ended here cross the one that says so.
        let Some(slot) = self.legs[leg].slot(stream) else {
            return Ok(());
        };
        let connection = &mut self.connections[slot];
        if matches!(connection.stage, Stage::Over) {
            return Ok(());
        }
        let is_unanswered = matches!(connection.stage, Stage::Connecting { .. });
        let Some(parts) = connection.stream_parts() else {
            return Ok(());
        };
        let is_unanswered = is_unanswered && parts.stream.of == Peer::Server;
        match message {
            Message::Ok { credit } if is_unanswered => {
                parts.stream.add_credit(credit);
                self.on_answer(slot, Ok(()), now_ns);
            }
            Message::Refused(refusal) if is_unanswered => {
                self.on_answer(slot, Err(refusal), now_ns);
                return Ok(());
            }
            Message::Data(payload) if parts.own.reading == Reading::Open => {
                let (socket, back) = (parts.socket, parts.back);
                let received = parts
                    .stream
                    .receive(payload, socket, back, &mut self.plumbing);
                received.map_err(|_| BadFrame)?;
                connection.count(&mut self.sums);
            }
            Message::Fin if parts.own.reading == Reading::Open => {
                parts.own.reading = Reading::Finished;
            }
            Message::Rst => {
                self.legs[leg].close(parts.stream, &mut self.budget);
                parts.own.abort(Failure::Reset);
            }
            Message::Credit(credit) => parts.stream.add_credit(credit),
            _ => return Err(BadFrame),
        }
        self.note_change(slot);
        self.update_stream(slot);
        Ok(())
    }
}
