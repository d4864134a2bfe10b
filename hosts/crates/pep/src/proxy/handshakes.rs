// SPDX-License-Identifier: Apache-2.0
//! From a client's first segment to a connection that is established on both sides, or refused.

use super::{ACCEPTING_NS, FIRST_DATA_NS, Proxy, TAKEN_PER_TURN};
use crate::config::{Mode, Side};
use crate::connection::{Addresses, Connection, Stage};
use crate::end::{End, Peer};
use crate::first_segment::{FirstSegment, Refusal};
use crate::multiplex::leg::Leg;
use crate::sockets::{SideSockets, connect};
use socket2::{SockAddr, Socket};
use std::io;
use std::net::SocketAddrV4;

impl Proxy {
    /// A client asks for a connection.
    pub(super) fn begin(&mut self, side_index: usize, first: FirstSegment, now_ns: u64) {
        let SideSockets { pair, side, .. } = self.sides[side_index];
        let addresses = (first.client, first.server);
        if !self.are_hosts(side, addresses) {
            return;
        }
        if self.leg_of(pair, side, addresses).is_some() {
            let _ = self.sides[side_index].release(&first);
            return;
        }
        if let Some(&slot) = self.slots.get(&addresses) {
            // While its server has not answered, it is ignored. Later the client may have missed its SYN-ACK, or may have
            // forgotten the connection: the kernel knows what to answer (RFC 5961, section 4).
            let is_awaited = match self.connections[slot].stage {
                Stage::Connecting { released, .. } => released,
                Stage::Accepting | Stage::Open => true,
                Stage::Closing | Stage::Resetting { .. } | Stage::Over => false,
            };
            if is_awaited {
                let _ = self.sides[side_index].release(&first);
            }
            return;
        }
        if !self.admits || !self.has_room(first.server, now_ns) {
            self.sums.ignored_syns += 1;
            return;
        }
        let slot = self.connections.vacant_key();
        let is_early = match self.config.mode {
            Mode::After => false,
            Mode::Early => true,
            Mode::Learned => self.learned.contains(first.server, now_ns),
        };
        let is_multiplexed = self.is_multiplexed(pair, side.opposite(), now_ns);
        let is_unopened =
            is_early && !is_multiplexed && self.config.legs.of(side.opposite()).fast_open;
        let server = if is_multiplexed || is_unopened {
            End::of_stream(slot, Peer::Server)
        } else {
            let route = (pair, side.opposite(), addresses);
            let connecting = self.connect_server(slot, route, false);
            match connecting {
                Ok(server) => server,
                Err(error) => return self.refuse(side_index, &first, Refusal::of(&error)),
            }
        };
        self.insert(addresses, (pair, side), server, now_ns);
        self.connections[slot].is_unopened = is_unopened;
        self.connections[slot].stage = Stage::Connecting {
            first: Some(first),
            released: false,
        };
        if is_multiplexed {
            self.open_stream(slot);
        }
        if is_early {
            self.release(slot);
        }
    }

    /// Begin to connect to the server of the connection in `slot`: its pair of legs, the side of the server, its addresses.
    pub(super) fn connect_server(
        &self,
        slot: usize,
        (pair, side, addresses): (usize, Side, Addresses),
        with_data: bool,
    ) -> io::Result<End> {
        let socket = connect(&self.config, pair, side, addresses, with_data)?;
        End::watch(&self.plumbing.epoll, socket, slot, Peer::Server)
    }

    /// Whether client, on `side`, and server are hosts of the experiment.
    pub(super) fn are_hosts(&self, side: Side, (client, server): Addresses) -> bool {
        let of = |side| &self.hosts[usize::from(side == Side::Island)];
        of(side).contains(client.ip()) && of(side.opposite()).contains(server.ip())
    }

    /// Whether another connection to `server` may begin.
    pub(super) fn has_room(&mut self, server: SocketAddrV4, now_ns: u64) -> bool {
        let has_room =
            self.pending.len() < self.config.pending_max || self.make_room(server, now_ns);
        // A multiplexed connection has one socket of its own.
        let streams: usize = self.legs.iter().map(Leg::streams).sum();
        let sockets = 2 * self.connections.len() - streams;
        has_room
            && self.connections.len() < self.config.connections_max
            && sockets + 2 <= self.sockets_max
    }

    /// A pending connection, in the next free slot.
    pub(super) fn insert(
        &mut self,
        addresses: Addresses,
        of: (usize, Side),
        server: End,
        now_ns: u64,
    ) {
        self.ids += 1;
        let until_ns = now_ns + self.config.handshake_ns;
        let connection = Connection::new(self.ids, addresses, of, server, (now_ns, until_ns));
        let slot = self.connections.insert(connection);
        self.pending.add(slot, &self.connections[slot]);
        self.slots.insert(addresses, slot);
    }

    /// Give up a pending connection for another one to `server`; whether there is one to give up.
    fn make_room(&mut self, server: SocketAddrV4, now_ns: u64) -> bool {
        let evicted = self.pending.victim(server, now_ns);
        if let Some(slot) = evicted {
            self.sums.evicted_connections += 1;
            self.give_up(slot);
        }
        evicted.is_some()
    }

    /// Let the kernel shake hands with the client.
    fn release(&mut self, slot: usize) {
        let connection = &mut self.connections[slot];
        let side_index = index_of(connection.pair, connection.client_side);
        if let Stage::Connecting {
            first: Some(first),
            released,
        } = &mut connection.stage
        {
            // A packet that cannot be sent is lost: the client does not answer, and the connection is given up.
            *released = *released || self.sides[side_index].release(first).is_ok();
        }
    }

    /// Tell a client that was not accepted.
    fn refuse(&mut self, side_index: usize, first: &FirstSegment, refusal: Refusal) {
        self.learned.forget(first.server);
        self.count_refusal(refusal);
        let side = &self.sides[side_index];
        match refusal {
            Refusal::Refused => side.answer(first, &first.refusal()),
            Refusal::Unreachable(code) => side.answer(first, &first.unreachable(code)),
            Refusal::Unanswered => {}
        }
    }

    pub(super) fn count_refusal(&mut self, refusal: Refusal) {
        *match refusal {
            Refusal::Refused => &mut self.sums.refused_connections,
            Refusal::Unreachable(_) => &mut self.sums.unreachable_connections,
            Refusal::Unanswered => &mut self.sums.unanswered_connections,
        } += 1;
    }

    pub(super) fn accept(&mut self, side_index: usize, now_ns: u64) {
        for _ in 0..TAKEN_PER_TURN {
            match self.sides[side_index].listener.accept() {
                Ok((socket, client)) => self.on_accepted(side_index, socket, &client, now_ns),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // accept(2): errors of the new connection itself, which is gone; there are descriptors, see `open`.
                Err(_) => {}
            }
        }
    }

    /// The client is established. A socket that belongs to nothing is closed, and its peer thereby reset.
    ///
    /// `client`: its address, as accept(2) returns it; the socket no longer has it if it was reset by now.
    fn on_accepted(&mut self, side_index: usize, socket: Socket, client: &SockAddr, now_ns: u64) {
        let SideSockets { pair, side, .. } = self.sides[side_index];
        let server = socket
            .local_addr()
            .ok()
            .and_then(|own| own.as_socket_ipv4());
        let Some(addresses) = client.as_socket_ipv4().zip(server) else {
            return;
        };
        if let Some(leg) = self.leg_of(pair, side, addresses) {
            if socket.set_nonblocking(true).is_ok() {
                self.accept_leg(leg, socket, now_ns);
            }
            return;
        }
        let Some(&slot) = self.slots.get(&addresses) else {
            return;
        };
        let connection = &mut self.connections[slot];
        let is_awaited = connection.is_pending() && connection.client.is_none();
        if !is_awaited || connection.pair != pair || socket.set_nonblocking(true).is_err() {
            return;
        }
        let watched = End::watch(&self.plumbing.epoll, socket, slot, Peer::Client);
        connection.client = watched.ok();
        if connection.client.is_none() {
            self.give_up(slot);
        } else if matches!(connection.stage, Stage::Accepting) {
            self.establish(slot, now_ns);
        } else if connection.is_unopened {
            let entry = (now_ns + FIRST_DATA_NS, slot, connection.id);
            self.unopened.push_back(entry);
        } else {
            self.update_stream(slot);
        }
    }

    /// Connect to the server of an accepted client, with what the client has sent by now.
    pub(super) fn open_server(&mut self, slot: usize, now_ns: u64) {
        let connection = &mut self.connections[slot];
        connection.is_unopened = false;
        let has_data = connection.take_first(&mut self.plumbing);
        let side = connection.client_side.opposite();
        let route = (connection.pair, side, connection.addresses);
        let opened = self.connect_server(slot, route, has_data);
        let connection = &mut self.connections[slot];
        match opened {
            Ok(end) => connection.open(end, &mut self.plumbing),
            Err(error) => return self.on_answer(slot, Err(Refusal::of(&error)), now_ns),
        }
        if connection.cannot_be_established() {
            self.give_up(slot);
        }
    }

    /// Connect to the servers of accepted clients that have not sent anything for too long: they wait for their servers.
    pub(super) fn open_servers(&mut self, now_ns: u64) {
        while let Some(&(until_ns, slot, id)) = self.unopened.front() {
            let connection = self.connections.get(slot).filter(|c| c.id == id);
            let is_unopened =
                connection.is_some_and(|c| c.is_unopened && !matches!(c.stage, Stage::Over));
            if is_unopened && now_ns < until_ns {
                return;
            }
            self.unopened.pop_front();
            if is_unopened {
                self.open_server(slot, now_ns);
            }
        }
    }

    fn establish(&mut self, slot: usize, now_ns: u64) {
        let connection = &mut self.connections[slot];
        self.pending.remove(slot, connection);
        connection.stage = Stage::Open;
        self.sums.connections += 1;
        if connection.stream.is_some() {
            self.sums.multiplexed_connections += 1;
        }
        self.learned.learn(connection.addresses.1, now_ns);
        self.enqueue(slot);
    }

    /// The server has accepted, or not.
    pub(super) fn on_answer(&mut self, slot: usize, answer: Result<(), Refusal>, now_ns: u64) {
        self.answer_stream(slot, answer);
        match answer {
            Ok(()) => {
                self.release(slot);
                let connection = &mut self.connections[slot];
                connection.stage = Stage::Accepting;
                if connection.client.is_some() {
                    self.establish(slot, now_ns);
                } else {
                    let until_ns = connection.until_ns.min(now_ns + ACCEPTING_NS);
                    self.pending.end_at(slot, connection, until_ns);
                }
            }
            Err(refusal) => {
                let connection = &mut self.connections[slot];
                let stage = std::mem::replace(&mut connection.stage, Stage::Accepting);
                let side_index = index_of(connection.pair, connection.client_side);
                if let Stage::Connecting {
                    first: Some(first),
                    released: false,
                } = stage
                {
                    self.refuse(side_index, &first, refusal);
                } else {
                    // The client's socket is reset when it is closed, or accepted without being awaited.
                    let server = connection.addresses.1;
                    self.learned.forget(server);
                    self.count_refusal(refusal);
                }
                self.end_pending(slot);
            }
        }
    }

    /// End a pending connection for another reason than its server's answer.
    pub(super) fn give_up(&mut self, slot: usize) {
        self.sums.unaccepted_connections += 1;
        self.end_pending(slot);
    }

    fn end_pending(&mut self, slot: usize) {
        self.pending.remove(slot, &self.connections[slot]);
        self.end(slot);
    }

    /// Give up connections that were not established in time.
    pub(super) fn expire(&mut self, now_ns: u64) {
        while let Some(slot) = self.pending.expired(now_ns) {
            self.sums.unanswered_connections += 1;
            self.end_pending(slot);
        }
    }
}

/// The order of [`open`].
fn index_of(pair: usize, side: Side) -> usize {
    2 * pair + usize::from(side == Side::Island)
}
