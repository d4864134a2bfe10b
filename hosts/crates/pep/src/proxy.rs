// SPDX-License-Identifier: Apache-2.0
//! The proxy: one thread and one epoll loop for all connections.
//!
//! A client's first segment is seen by a packet socket, and dropped by the machine's packet rules. It is delivered to the
//! listener, through `lo`, when the client is to be accepted: the kernel shakes hands with it by the segment's own options.

use crate::config::{Config, Mode, Side};
use crate::connection::{Addresses, Connection, Next, Stage};
use crate::counters::{Figures, Message, Present, Sums, median_and_max};
use crate::end::{End, Peer, of_token};
use crate::error::PepError;
use crate::first_segment::{FirstSegment, UnreachableCode};
use crate::learned_servers::LearnedServers;
use crate::request::{Answer, Content, Request, parse};
use crate::sockets::{Entrance, connect, open};
use crate::transfer::Plumbing;
use atoll_job::clock::{monotonic_ns, real_time_ns};
use atoll_job::{Input, Output};
use atoll_measures::{Marked, Peak};
use atoll_netio::syn_socket::Checksum;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use slab::Slab;
use socket2::Socket;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet, VecDeque};
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

const COUNTERS_NS: u64 = 100_000_000;

/// Connections whose figures are read for each line of counters.
const SAMPLED: usize = 32;

/// How often connections that are being reset are looked at: nothing reports that the peer has acknowledged.
const LOOK_NS: u64 = 10_000_000;

/// Taken from one socket in one turn of the loop.
const TAKEN_PER_TURN: usize = 256;

/// A client that has not completed its handshake by then makes room for others, when too many are pending: twice the time
/// after which a lost SYN is repeated, and the round trip of a satellite.
const HALF_OPEN_NS: u64 = 3_000_000_000;

/// A client that has not completed its handshake by then is gone: the kernel has repeated the SYN-ACK as often as `sockets`
/// lets it. A client that is slow all the same repeats its SYN, which begins a new connection.
const ACCEPTING_NS: u64 = 16_000_000_000;

const EVENTS: usize = 1024;

/// The longest packet of a first segment, with data in it.
const FIRST_SEGMENT_BYTES: usize = 9216;

/// Descriptors that are no connections'.
const OWN_DESCRIPTORS: u64 = 64;

/// Tokens from here on are not those of connections.
const RESERVED: u64 = u64::MAX - (1 << 32);
const INPUT: u64 = RESERVED;
const SIGNALS: u64 = RESERVED + 1;
/// Followed by the listeners and the packet sockets, in turn, of all entrances.
const ENTRANCES: u64 = RESERVED + 2;

/// Run until SIGTERM, SIGINT, SIGHUP or the end of standard input.
///
/// # Errors
/// `Configuration` if an interface or a congestion control is missing; others if the kernel refuses something.
pub(crate) fn run(input: Input<io::Stdin>, config: Config) -> Result<(), PepError> {
    let signals =
        atoll_netio::shutdown_signal::requests().map_err(PepError::of("wait for signals"))?;
    let mut proxy = Proxy::open(config)?;
    let output = Output::start().map_err(PepError::of("start a thread"))?;
    proxy.watch(&signals, SIGNALS)?;
    proxy.watch(&input, INPUT)?;
    output.line(&Message::Ready);
    proxy.serve(input, &output)?;
    proxy.reset(None);
    proxy.sweep();
    let figures = proxy.figures_since_mark();
    let t_ns = real_time_ns();
    output.line(&Message::Done { t_ns, figures });
    output.finish();
    Ok(())
}

struct Proxy {
    config: Config,
    hosts: [HashSet<Ipv4Addr>; 2],
    entrances: Vec<Entrance>,
    connections: Slab<Connection>,
    slots: HashMap<Addresses, usize>,
    ids: u64,
    pending: u64,
    /// Until when, slots and ids of connections that were pending.
    handshakes: BinaryHeap<Reverse<(u64, usize, u64)>>,
    /// Those with something to do.
    queue: VecDeque<usize>,
    waiting_for_memory: Vec<usize>,
    resetting: BTreeSet<usize>,
    /// When those are looked at next.
    look_at_ns: u64,
    /// To be removed when all events of a turn are served.
    over: Vec<usize>,
    learned: LearnedServers,
    plumbing: Plumbing,
    sums: Sums,
    marked: Marked<Sums>,
    held: Peak,
    buffered: Peak,
    /// The next connection to be sampled.
    cursor: usize,
}

/// What made a connection to a server fail.
enum Attempt {
    Refused,
    Unreachable(UnreachableCode),
    Unanswered,
}

impl Attempt {
    fn of(error: &io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::CONNREFUSED | Errno::CONNRESET) => Self::Refused,
            Some(Errno::NETUNREACH) => Self::Unreachable(UnreachableCode::Network),
            Some(Errno::HOSTUNREACH) => Self::Unreachable(UnreachableCode::Host),
            Some(Errno::NOPROTOOPT) => Self::Unreachable(UnreachableCode::Protocol),
            // No answer; or something is missing here, a port that is still in use for one: the client tries again.
            _ => Self::Unanswered,
        }
    }
}

impl Proxy {
    fn open(mut config: Config) -> Result<Self, PepError> {
        let descriptors = raise_descriptor_limit().saturating_sub(OWN_DESCRIPTORS);
        config.connections_max = config.connections_max.min((descriptors / 2) as usize);
        let backlog = std::fs::read_to_string("/proc/sys/net/core/somaxconn");
        let backlog = backlog
            .ok()
            .and_then(|text| text.trim().parse::<usize>().ok());
        // Beyond its backlog the kernel would answer by SYN cookies, without the options of the client.
        config.pending_max = config.pending_max.min(backlog.unwrap_or(4096) / 2);
        let entrances = open(&config)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(PepError::of("open an epoll"))?;
        let plumbing = Plumbing::new(epoll).map_err(PepError::of("open a pipe"))?;
        let proxy = Self {
            hosts: Side::BOTH.map(|side| config.hosts.of(side).iter().copied().collect()),
            entrances,
            connections: Slab::new(),
            slots: HashMap::new(),
            ids: 0,
            pending: 0,
            handshakes: BinaryHeap::new(),
            queue: VecDeque::new(),
            waiting_for_memory: Vec::new(),
            resetting: BTreeSet::new(),
            look_at_ns: 0,
            over: Vec::new(),
            learned: LearnedServers::new(config.learned_for_ns),
            plumbing,
            sums: Sums::default(),
            marked: Marked::default(),
            held: Peak::default(),
            buffered: Peak::default(),
            cursor: 0,
            config,
        };
        for (number, entrance) in proxy.entrances.iter().enumerate() {
            let token = ENTRANCES + 2 * number as u64;
            proxy.watch(&entrance.listener, token)?;
            proxy.watch(&entrance.seen, token + 1)?;
        }
        Ok(proxy)
    }

    fn watch(&self, descriptor: impl rustix::fd::AsFd, token: u64) -> Result<(), PepError> {
        let token = EventData::new_u64(token);
        match epoll::add(&self.plumbing.epoll, descriptor, token, EventFlags::IN) {
            // A regular file as standard input: it has ended.
            Ok(()) | Err(Errno::PERM) => Ok(()),
            Err(error) => Err(PepError::of("watch a descriptor")(error)),
        }
    }

    fn serve(&mut self, mut input: Input<io::Stdin>, output: &Output) -> Result<(), PepError> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        let mut counters_at_ns = monotonic_ns() + COUNTERS_NS;
        loop {
            self.wait(&mut events, counters_at_ns)?;
            let now_ns = monotonic_ns();
            for event in &events {
                let flags = event.flags;
                match event.data.u64() {
                    SIGNALS => return Ok(()),
                    INPUT => input.read().map_err(PepError::of("read standard input"))?,
                    token if token >= ENTRANCES => self.enter(token - ENTRANCES, now_ns)?,
                    token => self.note(token, flags, now_ns),
                }
            }
            while let Some(request) = input.next_request(parse) {
                self.obey(request, output, now_ns);
            }
            if input.ended() {
                return Ok(());
            }
            self.work(now_ns);
            self.expire(now_ns);
            if now_ns >= counters_at_ns {
                counters_at_ns = (counters_at_ns + COUNTERS_NS).max(now_ns);
                self.sample();
                let figures = self.figures(Peak::take_interval);
                let t_ns = real_time_ns();
                output.repeatable_line(&Message::Counters { t_ns, figures });
            }
            self.sweep();
        }
    }

    /// Sleep until a descriptor is ready or something is due.
    fn wait(&self, events: &mut Vec<Event>, counters_at_ns: u64) -> Result<(), PepError> {
        let now_ns = monotonic_ns();
        let mut until_ns = counters_at_ns;
        if !self.resetting.is_empty() {
            until_ns = until_ns.min(self.look_at_ns);
        }
        let memory_waits = !self.waiting_for_memory.is_empty() && !self.plumbing.is_full();
        if !self.queue.is_empty() || memory_waits {
            until_ns = now_ns;
        }
        let timeout = Duration::from_nanos(until_ns.saturating_sub(now_ns));
        let timeout = Timespec::try_from(timeout).unwrap_or_default();
        events.clear();
        match epoll::wait(&self.plumbing.epoll, spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(PepError::of("wait for events")(error)),
        }
    }

    /// A listener or a packet socket is ready.
    fn enter(&mut self, token: u64, now_ns: u64) -> Result<(), PepError> {
        let number = (token / 2) as usize;
        if token % 2 == 0 {
            self.accept(number, now_ns);
            return Ok(());
        }
        let mut buffer = [0; FIRST_SEGMENT_BYTES];
        for _ in 0..TAKEN_PER_TURN {
            let entrance = &self.entrances[number];
            let received = entrance.seen.receive(&mut buffer);
            let doing = format!("receive at {}", entrance.interface);
            let Some((length, checksum)) = received.map_err(PepError::of(doing))? else {
                break;
            };
            let is_missing = checksum == Checksum::Missing;
            if let Some(first) = FirstSegment::parse(&buffer[..length], is_missing) {
                self.begin(number, first, now_ns);
            }
        }
        Ok(())
    }

    /// A client asks for a connection.
    fn begin(&mut self, entrance: usize, first: FirstSegment, now_ns: u64) {
        let Entrance { pair, side, .. } = self.entrances[entrance];
        let [clients, servers] = match side {
            Side::World => [0, 1],
            Side::Island => [1, 0],
        };
        if !self.hosts[clients].contains(first.client.ip())
            || !self.hosts[servers].contains(first.server.ip())
        {
            return;
        }
        let addresses = (first.client, first.server);
        if let Some(&slot) = self.slots.get(&addresses) {
            // While its server has not answered, it is ignored. Later the client may have missed its SYN-ACK, or may have
            // forgotten the connection: the kernel knows what to answer (RFC 5961, section 4).
            let is_awaited = match self.connections[slot].stage {
                Stage::Connecting { released, .. } => released,
                Stage::Accepting | Stage::Open => true,
                Stage::Closing | Stage::Resetting { .. } | Stage::Over => false,
            };
            if is_awaited {
                let _ = self.entrances[entrance].release(&first);
            }
            return;
        }
        let has_room = self.pending < self.config.pending_max as u64 || self.make_room(now_ns);
        if !has_room || self.connections.len() >= self.config.connections_max {
            self.sums.ignored_syns += 1;
            return;
        }
        let begun = connect(
            &self.config,
            pair,
            side.opposite(),
            first.client,
            first.server,
        )
        .and_then(|socket| {
            let slot = self.connections.vacant_key();
            End::watch(&self.plumbing.epoll, socket, slot, Peer::Server)
        });
        let server = match begun {
            Ok(server) => server,
            Err(error) => return self.refuse(entrance, &first, &Attempt::of(&error)),
        };
        let is_early = match self.config.mode {
            Mode::After => false,
            Mode::Early => true,
            Mode::Learned => self.learned.contains(first.server, now_ns),
        };
        self.ids += 1;
        let until_ns = now_ns + self.config.handshake_ns;
        let times = (now_ns, until_ns);
        let connection = Connection::new(self.ids, first, (pair, side), server, times);
        let slot = self.connections.insert(connection);
        self.slots.insert(addresses, slot);
        self.handshakes.push(Reverse((until_ns, slot, self.ids)));
        self.pending += 1;
        if is_early {
            self.release(slot);
        }
    }

    /// Give up the connection whose client has not completed its handshake for the longest time; whether there is one.
    fn make_room(&mut self, now_ns: u64) -> bool {
        let half_open = self.connections.iter().filter(|(_, one)| {
            matches!(one.stage, Stage::Accepting) && now_ns >= one.began_ns + HALF_OPEN_NS
        });
        let Some((slot, _)) = half_open.min_by_key(|(_, one)| one.began_ns) else {
            return false;
        };
        self.give_up(slot);
        true
    }

    /// Let the kernel shake hands with the client.
    fn release(&mut self, slot: usize) {
        let connection = &mut self.connections[slot];
        let entrance = entrance_of(&self.entrances, connection);
        if let Stage::Connecting { first, released } = &mut connection.stage {
            // A packet that cannot be sent is lost: the client does not answer, and the connection is given up.
            *released = *released || entrance.release(first).is_ok();
        }
    }

    /// Tell a client that was not accepted.
    fn refuse(&mut self, entrance: usize, first: &FirstSegment, attempt: &Attempt) {
        let entrance = &self.entrances[entrance];
        self.learned.forget(first.server);
        match attempt {
            Attempt::Refused => {
                self.sums.refused_connections += 1;
                entrance.answer(first, &first.refusal());
            }
            Attempt::Unreachable(code) => {
                self.sums.unreachable_connections += 1;
                entrance.answer(first, &first.unreachable(*code));
            }
            Attempt::Unanswered => self.sums.unanswered_connections += 1,
        }
    }

    fn accept(&mut self, entrance: usize, now_ns: u64) {
        for _ in 0..TAKEN_PER_TURN {
            let Entrance { pair, listener, .. } = &self.entrances[entrance];
            let (pair, accepted) = (*pair, listener.accept());
            match accepted {
                Ok((socket, _)) => self.join(pair, socket, now_ns),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // accept(2): errors of the new connection itself, which is gone; there are descriptors, see `open`.
                Err(_) => {}
            }
        }
    }

    /// The client is established. A socket that belongs to nothing is closed, and its peer thereby reset.
    fn join(&mut self, pair: usize, socket: Socket, now_ns: u64) {
        let address = |address: io::Result<socket2::SockAddr>| address.ok()?.as_socket_ipv4();
        let Some(addresses) = address(socket.peer_addr()).zip(address(socket.local_addr())) else {
            return;
        };
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
        }
    }

    fn establish(&mut self, slot: usize, now_ns: u64) {
        let connection = &mut self.connections[slot];
        connection.stage = Stage::Open;
        self.pending -= 1;
        self.sums.connections += 1;
        self.learned.learn(connection.addresses.1, now_ns);
        self.enqueue(slot);
    }

    /// The kernel reports something of a connection.
    fn note(&mut self, token: u64, flags: EventFlags, now_ns: u64) {
        let (slot, peer) = of_token(token);
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        match (peer, &mut connection.client) {
            (Peer::Server, _) if matches!(connection.stage, Stage::Connecting { .. }) => {
                self.note_answer(slot, flags, now_ns);
                return;
            }
            (Peer::Server, _) => connection.server.note(flags),
            (Peer::Client, Some(client)) => client.note(flags),
            (Peer::Client, None) => {}
        }
        match connection.stage {
            Stage::Connecting { .. } | Stage::Accepting => {
                let ends = connection.client.iter().chain([&connection.server]);
                if ends.into_iter().any(|end| end.failure.is_some()) {
                    self.give_up(slot);
                }
            }
            Stage::Over => {}
            _ => self.enqueue(slot),
        }
    }

    /// The server has accepted, or not.
    fn note_answer(&mut self, slot: usize, flags: EventFlags, now_ns: u64) {
        let connection = &mut self.connections[slot];
        let answer = connection.server.take_error();
        connection.server.note(flags);
        match answer {
            Ok(()) => {
                self.release(slot);
                let connection = &mut self.connections[slot];
                connection.stage = Stage::Accepting;
                if connection.client.is_some() {
                    self.establish(slot, now_ns);
                } else {
                    connection.until_ns = connection.until_ns.min(now_ns + ACCEPTING_NS);
                    let entry = (connection.until_ns, slot, connection.id);
                    self.handshakes.push(Reverse(entry));
                }
            }
            Err(error) => {
                let attempt = Attempt::of(&error);
                let Stage::Connecting { first, released } =
                    std::mem::replace(&mut connection.stage, Stage::Accepting)
                else {
                    return;
                };
                if released {
                    // The client's socket is reset when it is closed, or accepted without being awaited.
                    let server = connection.addresses.1;
                    self.learned.forget(server);
                    *match attempt {
                        Attempt::Refused => &mut self.sums.refused_connections,
                        Attempt::Unreachable(_) => &mut self.sums.unreachable_connections,
                        Attempt::Unanswered => &mut self.sums.unanswered_connections,
                    } += 1;
                } else {
                    let side = connection.client_side;
                    let entrance = index_of(connection.pair, side);
                    self.refuse(entrance, &first, &attempt);
                }
                self.end_pending(slot);
            }
        }
    }

    /// End a pending connection for another reason than its server's answer.
    fn give_up(&mut self, slot: usize) {
        self.sums.unaccepted_connections += 1;
        self.end_pending(slot);
    }

    fn end_pending(&mut self, slot: usize) {
        self.pending -= 1;
        self.end(slot);
    }

    fn end(&mut self, slot: usize) {
        self.connections[slot].stage = Stage::Over;
        self.over.push(slot);
    }

    fn enqueue(&mut self, slot: usize) {
        let connection = &mut self.connections[slot];
        if !connection.is_queued {
            connection.is_queued = true;
            self.queue.push_back(slot);
        }
    }

    /// Give each connection with something to do one turn.
    fn work(&mut self, now_ns: u64) {
        if !self.plumbing.is_full() {
            for slot in std::mem::take(&mut self.waiting_for_memory) {
                if self.connections.contains(slot) {
                    self.enqueue(slot);
                }
            }
        }
        if now_ns >= self.look_at_ns {
            self.look_at_ns = now_ns + LOOK_NS;
            for slot in self.resetting.clone() {
                self.enqueue(slot);
            }
        }
        for _ in 0..self.queue.len() {
            let Some(slot) = self.queue.pop_front() else {
                return;
            };
            let Some(connection) = self.connections.get_mut(slot) else {
                continue;
            };
            connection.is_queued = false;
            if !connection.is_established() {
                continue;
            }
            let flush_ns = self.config.flush_ns;
            let next = connection.advance(&mut self.plumbing, &mut self.sums, now_ns, flush_ns);
            self.buffered.record(self.plumbing.buffered_bytes);
            match next {
                Next::Wait => {}
                Next::Continue => self.enqueue(slot),
                Next::WaitForMemory => self.waiting_for_memory.push(slot),
                Next::Look => {
                    self.resetting.insert(slot);
                }
                Next::End => {
                    self.resetting.remove(&slot);
                    self.end(slot);
                }
            }
        }
    }

    /// Give up connections that were not established in time.
    fn expire(&mut self, now_ns: u64) {
        while let Some(&Reverse((until_ns, slot, id))) = self.handshakes.peek() {
            if now_ns < until_ns {
                return;
            }
            self.handshakes.pop();
            let connection = self.connections.get(slot).filter(|one| one.id == id);
            if connection.is_some_and(Connection::is_pending) {
                self.sums.unanswered_connections += 1;
                self.end_pending(slot);
            }
        }
    }

    /// Close the sockets of connections that are over.
    fn sweep(&mut self) {
        for slot in self.over.drain(..) {
            let mut connection = self.connections.remove(slot);
            connection.discard(&mut self.plumbing);
            self.slots.remove(&connection.addresses);
        }
    }

    /// Read the figures of the next connections.
    fn sample(&mut self) {
        let after = self.connections.iter().map(|(slot, _)| slot);
        let (later, earlier): (Vec<usize>, Vec<usize>) =
            after.partition(|&slot| slot >= self.cursor);
        for slot in later.into_iter().chain(earlier).take(SAMPLED) {
            self.cursor = slot + 1;
            let silence_ns = self.config.silence_ns;
            let connection = &mut self.connections[slot];
            if connection.is_established() && connection.take_sample(silence_ns) {
                self.enqueue(slot);
            }
        }
    }

    /// The figures now, with maxima as `take` takes them.
    fn figures(&mut self, take: fn(&mut Peak) -> u64) -> Figures {
        let established = self.connections.iter().map(|(_, connection)| connection);
        let mut rtts = [Vec::new(), Vec::new()];
        let mut present = Present {
            pending_connections: self.pending,
            buffered_bytes: self.plumbing.buffered_bytes,
            pipes: 1,
            memory_bytes: resident_bytes(),
            ..Present::default()
        };
        for connection in established.filter(|connection| connection.is_established()) {
            present.open_connections += 1;
            present.held_bytes += connection.sample.held_bytes;
            for (rtts, side) in rtts.iter_mut().zip(Side::BOTH) {
                rtts.extend(connection.sample.rtt_ns.of(side));
            }
        }
        let [world, island] = rtts.map(|mut rtts| median_and_max(&mut rtts).unzip());
        (present.world_rtt_median_ns, present.world_rtt_max_ns) = world;
        (present.island_rtt_median_ns, present.island_rtt_max_ns) = island;
        self.held.record(present.held_bytes);
        self.buffered.record(present.buffered_bytes);
        present.held_max_bytes = take(&mut self.held);
        present.buffered_max_bytes = take(&mut self.buffered);
        Figures {
            sums: self.sums,
            present,
        }
    }

    fn figures_since_mark(&mut self) -> Figures {
        let figures = self.figures(Peak::take_measurement);
        Figures {
            sums: self.marked.measure(self.sums),
            ..figures
        }
    }

    fn obey(&mut self, request: Request, output: &Output, now_ns: u64) {
        let (op, id, content) = match request {
            Request::Mark { id } => {
                let figures = self.figures_since_mark();
                let t_ns = real_time_ns();
                output.line(&Message::Mark { id, t_ns, figures });
                return;
            }
            Request::Set { id, mode } => {
                self.config.mode = mode;
                ("set".to_owned(), id, Content::Nothing {})
            }
            Request::Reset { id, pair } => ("reset".to_owned(), id, self.reset(pair)),
            Request::Connections { id, limit } => {
                ("connections".to_owned(), id, self.list(limit, now_ns))
            }
            Request::Mistaken { op, id, error } => (op, id, Content::Error { error }),
        };
        output.line(&Answer {
            op,
            id,
            t_ns: real_time_ns(),
            ok: !matches!(content, Content::Error { .. }),
            content,
        });
    }

    fn reset(&mut self, pair: Option<usize>) -> Content {
        let pairs = self.config.pairs.len();
        if let Some(pair) = pair.filter(|&pair| pair >= pairs) {
            let error =
                format!("there is no pair {pair}: the configuration has {pairs}, numbered from 0");
            return Content::Error { error };
        }
        let of_pair = |connection: &Connection| {
            pair.is_none_or(|pair| connection.pair == pair)
                && !matches!(connection.stage, Stage::Over)
        };
        let chosen = self
            .connections
            .iter()
            .filter(|(_, connection)| of_pair(connection));
        let chosen: Vec<usize> = chosen.map(|(slot, _)| slot).collect();
        for &slot in &chosen {
            if self.connections[slot].is_pending() {
                self.give_up(slot);
            } else {
                self.sums.own_resets += 1;
                self.resetting.remove(&slot);
                self.end(slot);
            }
        }
        Content::Ended {
            connections: chosen.len(),
        }
    }

    fn list(&self, limit: usize, now_ns: u64) -> Content {
        let mut found: Vec<&Connection> = self.connections.iter().map(|(_, one)| one).collect();
        found.sort_by_key(|one| (std::cmp::Reverse(one.sample.held_bytes), one.id));
        let first = found.into_iter().take(limit);
        Content::Listed {
            connections: first.map(|connection| connection.listed(now_ns)).collect(),
        }
    }
}

/// The order of [`open`].
fn index_of(pair: usize, side: Side) -> usize {
    2 * pair + usize::from(side == Side::Island)
}

fn entrance_of<'a>(entrances: &'a [Entrance], connection: &Connection) -> &'a Entrance {
    &entrances[index_of(connection.pair, connection.client_side)]
}

/// Allow this process as many descriptors as the machine lets it have, and say how many those are.
fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    now.unwrap_or(u64::MAX)
}

/// Resident memory of this process (proc(5), statm); 0 if it cannot be read.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<u64> = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
