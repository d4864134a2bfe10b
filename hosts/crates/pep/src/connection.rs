// SPDX-License-Identifier: Apache-2.0
//! A connection of a client through the proxy, from its first segment to its end.

use crate::config::{BySide, Side};
use crate::end::{End, Failure, Peer};
use crate::first_segment::FirstSegment;
use crate::messages::{ListedConnection, Sums};
use crate::multiplex::stream::Stream;
use crate::transfer::{Direction, Plumbing, Turn};
use atoll_netio::tcp_options::TcpProgress;
use std::net::SocketAddrV4;

/// Client and server: one connection at a time has both.
pub(crate) type Addresses = (SocketAddrV4, SocketAddrV4);

/// How far a connection has come.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The server has not answered yet. The client may be accepted already.
    Connecting {
        /// None: a stream of the other PEP, whose client is none of this one's.
        first: Option<FirstSegment>,
        /// The client gets its SYN-ACK.
        released: bool,
    },
    /// The server has accepted, and the client is to acknowledge.
    Accepting,
    /// Established on both sides.
    Open,
    /// Both streams have ended, and are to be acknowledged.
    Closing,
    /// One peer is gone. The other one is reset when it has acknowledged everything, or at this time.
    Resetting { until_ns: u64 },
    /// Its sockets can be closed.
    Over,
}

/// The stream of a connection, and what it is connected to.
pub(crate) struct StreamParts<'a> {
    pub stream: &'a mut Stream,
    pub own: &'a mut End,
    /// The other end; none: the client has not been accepted yet.
    pub socket: Option<&'a mut End>,
    /// Towards the other PEP.
    pub out: &'a mut Direction,
    /// From there.
    pub back: &'a mut Direction,
}

impl StreamParts<'_> {
    /// Whether the stream is to wait for a turn, and does not yet.
    pub(crate) fn joins_queue(&mut self) -> bool {
        let wants = self
            .socket
            .as_deref()
            .is_some_and(|socket| self.stream.wants_turn(socket));
        wants && !std::mem::replace(&mut self.stream.is_queued, true)
    }
}

/// The latest readings of a connection's sockets.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    pub held_bytes: u64,
    pub rtt_ns: BySide<Option<u64>>,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Distinguishes it from an earlier one with the same slot.
    pub id: u64,
    pub addresses: Addresses,
    pub pair: usize,
    pub client_side: Side,
    pub began_ns: u64,
    /// When it is given up if it is pending.
    pub until_ns: u64,
    pub stage: Stage,
    /// None before it was accepted.
    pub client: Option<End>,
    pub server: End,
    /// In the place of one of the sockets.
    pub stream: Option<Stream>,
    to_server: Direction,
    to_client: Direction,
    /// The bytes of both directions that are counted already.
    counted_bytes: (u64, u64),
    /// Whose FIN came first.
    first_end: Option<Peer>,
    pub sample: Sample,
    /// It is in the queue of those with something to do.
    pub is_queued: bool,
    /// Its server's socket is to be opened with the first data of its client.
    pub is_unopened: bool,
}

/// What to do with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait for an event.
    Wait,
    /// Continue as soon as others had their turn.
    Continue,
    /// Continue when there is less in memory.
    WaitForMemory,
    /// Look again soon whether everything is acknowledged.
    CheckAgain,
    /// Close its sockets.
    End,
}

impl Connection {
    pub(crate) fn new(
        id: u64,
        addresses: Addresses,
        (pair, client_side): (usize, Side),
        server: End,
        (now_ns, until_ns): (u64, u64),
    ) -> Self {
        Self {
            id,
            addresses,
            pair,
            client_side,
            began_ns: now_ns,
            until_ns,
            stage: Stage::Connecting {
                first: None,
                released: false,
            },
            client: None,
            server,
            stream: None,
            to_server: Direction::default(),
            to_client: Direction::default(),
            counted_bytes: (0, 0),
            first_end: None,
            sample: Sample::default(),
            is_queued: false,
            is_unopened: false,
        }
    }

    /// Whether it is not established on both sides yet.
    pub(crate) fn is_pending(&self) -> bool {
        matches!(self.stage, Stage::Connecting { .. } | Stage::Accepting)
    }

    /// Whether it is established on both sides.
    pub(crate) fn is_established(&self) -> bool {
        !self.is_pending() && !matches!(self.stage, Stage::Over)
    }

    /// Whether nothing can come of it while it is pending: its server is gone, or its client, which has left nothing. A client
    /// that was accepted early may have sent something before it was reset, which its server is to get.
    pub(crate) fn cannot_be_established(&self) -> bool {
        let left_nothing = |client: &End| {
            client.failure.is_some()
                && self.to_server.is_empty()
                && client.progress().is_none_or(|p| p.received_bytes == 0)
        };
        self.server.failure.is_some() || self.client.as_ref().is_some_and(left_nothing)
    }

    /// Whether its server's socket is to be opened now: its client has sent something, or its end.
    pub(crate) fn is_unopened_with_data(&self) -> bool {
        self.is_unopened && self.client.as_ref().is_some_and(|client| client.readable)
    }

    /// Read the client's first data; whether there are any.
    pub(crate) fn take_first(&mut self, plumbing: &mut Plumbing) -> bool {
        if let Some(client) = &mut self.client {
            self.to_server.take_first(client, plumbing);
        }
        !self.to_server.is_empty()
    }

    /// Its server's socket is opened: put the client's first data into its SYN.
    pub(crate) fn open(&mut self, server: End, plumbing: &mut Plumbing) {
        self.server = server;
        if !self.to_server.is_empty() {
            self.to_server.give_first(&mut self.server, plumbing);
        }
    }

    /// Pass on bytes as far as the sockets of an established connection are ready: a bounded amount of work.
    pub(crate) fn advance(
        &mut self,
        plumbing: &mut Plumbing,
        sums: &mut Sums,
        now_ns: u64,
        flush_ns: u64,
    ) -> Next {
        let Some(client) = &mut self.client else {
            return Next::Wait;
        };
        let results = [
            self.to_server.pass(client, &mut self.server, plumbing),
            self.to_client.pass(&mut self.server, client, plumbing),
        ];
        if self.first_end.is_none() {
            use crate::end::Reading::Finished;
            self.first_end = match (client.reading, self.server.reading) {
                (Finished, _) => Some(Peer::Client),
                (_, Finished) => Some(Peer::Server),
                _ => None,
            };
        }
        if client.failure.is_some() || self.server.failure.is_some() {
            return self.reset(sums, now_ns, flush_ns);
        }
        if client.has_ended() && self.server.has_ended() {
            self.stage = Stage::Closing;
            return self.close(sums);
        }
        if results.contains(&Turn::More) {
            Next::Continue
        } else if results.contains(&Turn::Full) {
            Next::WaitForMemory
        } else {
            Next::Wait
        }
    }

    /// Both streams have ended: the connection has when both peers have acknowledged that.
    fn close(&mut self, sums: &mut Sums) -> Next {
        let ends = self.client.iter().chain([&self.server]);
        for end in ends {
            if end.progress().is_some_and(|progress| !progress.closed) {
                return Next::Wait;
            }
        }
        match self.first_end {
            Some(Peer::Client) => sums.client_first_ends += 1,
            _ => sums.server_first_ends += 1,
        }
        Next::End
    }

    /// One peer is gone: deliver what it sent before, then reset the other one.
    fn reset(&mut self, sums: &mut Sums, now_ns: u64, flush_ns: u64) -> Next {
        use crate::end::Reading::Open;
        let Some(client) = &self.client else {
            return Next::End;
        };
        let until_ns = if let Stage::Resetting { until_ns } = self.stage {
            until_ns
        } else {
            let (peer, failure) = match (client.failure, self.server.failure) {
                (Some(failure), _) => (Peer::Client, failure),
                (None, failure) => (Peer::Server, failure.unwrap_or(Failure::Reset)),
            };
            *match (peer, failure) {
                (Peer::Client, Failure::Reset) => &mut sums.client_resets,
                (Peer::Server, Failure::Reset) => &mut sums.server_resets,
                (Peer::Client, Failure::Vanished) => &mut sums.client_vanished_ends,
                (Peer::Server, Failure::Vanished) => &mut sums.server_vanished_ends,
                (_, Failure::Cut) => &mut sums.own_resets,
            } += 1;
            now_ns + flush_ns
        };
        self.stage = Stage::Resetting { until_ns };
        let (failed, other, direction) = if client.failure.is_some() {
            (client, &self.server, &self.to_server)
        } else {
            (&self.server, client, &self.to_client)
        };
        let is_delivered = || {
            let all_read = failed.reading != Open;
            let flushed = other
                .progress()
                .is_none_or(|progress| progress.is_flushed());
            all_read && direction.is_empty() && flushed
        };
        if other.failure.is_some() || now_ns >= until_ns || is_delivered() {
            return Next::End;
        }
        Next::CheckAgain
    }

    /// Count the bytes that were passed on since the last time.
    pub(crate) fn count(&mut self, sums: &mut Sums) {
        let passed_bytes = (self.to_server.passed_bytes, self.to_client.passed_bytes);
        let (to_server, to_client) = match self.client_side {
            Side::World => (&mut sums.to_island_bytes, &mut sums.to_world_bytes),
            Side::Island => (&mut sums.to_world_bytes, &mut sums.to_island_bytes),
        };
        *to_server += passed_bytes.0 - self.counted_bytes.0;
        *to_client += passed_bytes.1 - self.counted_bytes.1;
        self.counted_bytes = passed_bytes;
    }

    /// Its stream, if it has one that is not over: another one may have its number by now.
    pub(crate) fn stream_parts(&mut self) -> Option<StreamParts<'_>> {
        let stream = self.stream.as_mut().filter(|stream| !stream.is_closed)?;
        let (client, server) = (self.client.as_mut(), &mut self.server);
        let (own, socket, out, back) = match stream.of {
            Peer::Client => (
                client?,
                Some(server),
                &mut self.to_client,
                &mut self.to_server,
            ),
            Peer::Server => (server, client, &mut self.to_server, &mut self.to_client),
        };
        Some(StreamParts {
            stream,
            own,
            socket,
            out,
            back,
        })
    }

    /// Forget the bytes that were not delivered.
    pub(crate) fn discard(&mut self, plumbing: &mut Plumbing) {
        self.to_server.discard(plumbing);
        self.to_client.discard(plumbing);
    }

    /// Read the kernel's counters of both sockets; a peer that is silent for too long has vanished. Returns whether one has.
    pub(crate) fn take_sample(&mut self, silence_ns: u64) -> bool {
        let Some(client) = &mut self.client else {
            return false;
        };
        let server = &mut self.server;
        let (of_client, server_slots) = (client.progress(), server.progress());
        let stream_bytes = self
            .stream
            .as_ref()
            .map_or(0, |stream| stream.received_bytes);
        let held = |from: Option<TcpProgress>, to: Option<TcpProgress>, direction: &Direction| {
            let received = from.map_or(stream_bytes, |from| from.received_bytes);
            let acknowledged = to.map_or(direction.passed_bytes, |to| to.acknowledged_bytes);
            received.saturating_sub(acknowledged)
        };
        self.sample.held_bytes = held(of_client, server_slots, &self.to_server)
            + held(server_slots, of_client, &self.to_client);
        let server_side = self.client_side.opposite();
        let mut has_vanished = false;
        for (side, end, progress) in [
            (self.client_side, client, of_client),
            (server_side, server, server_slots),
        ] {
            let Some(progress) = progress else {
                continue;
            };
            let rtt_ns = u64::from(progress.rtt_us) * 1000;
            *self.sample.rtt_ns.of_mut(side) = (rtt_ns > 0).then_some(rtt_ns);
            let silent_ns = u64::from(progress.since_acknowledgement_ms) * 1_000_000;
            if !progress.closed && !progress.is_flushed() && silent_ns > silence_ns {
                end.fail(Failure::Vanished);
                has_vanished = true;
            }
        }
        has_vanished
    }

    /// As an answer to a request lists it.
    pub(crate) fn listed(&self, now_ns: u64) -> ListedConnection {
        let (to_world, to_island) = match self.client_side {
            Side::Island => (&self.to_server, &self.to_client),
            Side::World => (&self.to_client, &self.to_server),
        };
        ListedConnection {
            client: self.addresses.0,
            server: self.addresses.1,
            pair: self.pair,
            client_side: self.client_side,
            state: match self.stage {
                Stage::Connecting { .. } => "connecting",
                Stage::Accepting => "accepting",
                Stage::Open => "open",
                Stage::Closing => "closing",
                Stage::Resetting { .. } | Stage::Over => "resetting",
            },
            to_island_bytes: to_island.passed_bytes,
            to_world_bytes: to_world.passed_bytes,
            held_bytes: self.sample.held_bytes,
            world_rtt_ns: self.sample.rtt_ns.world,
            island_rtt_ns: self.sample.rtt_ns.island,
            age_ns: now_ns.saturating_sub(self.began_ns),
        }
    }
}
