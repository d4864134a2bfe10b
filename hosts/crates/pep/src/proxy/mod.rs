// SPDX-License-Identifier: Apache-2.0
//! The proxy: one thread and one epoll loop for all connections.
//!
//! A client's first segment is seen by a packet socket, and dropped by the machine's packet rules. It is delivered to the
//! listener, through `lo`, when the client is to be accepted: the kernel shakes hands with it by the segment's own options.

mod handshakes;
mod reports;
mod streams;
#[cfg(test)]
mod tests;

use crate::config::{Config, LEGS_MAX, PAIRS_MAX, Side};
use crate::connection::{Addresses, Connection, Next, Stage};
use crate::end::{Peer, slot_and_peer};
use crate::first_segment::{FirstSegment, Refusal};
use crate::messages::{Message, Sums};
use crate::multiplex::credit::Budget;
use crate::multiplex::leg::{self, Leg};
use crate::pending::{LearnedServers, Pending};
use crate::sockets::{SideSockets, multiplexed_unsent_bytes, open};
use crate::transfer::Plumbing;
use atoll_job::clock::{monotonic_ns, real_time_ns};
use atoll_job::{Input, Output, failed};
use atoll_measures::{Marked, Peak};
use atoll_netio::memory_limit::limit_memory;
use atoll_netio::process::raise_descriptor_limit;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use slab::Slab;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

const COUNTERS_NS: u64 = 100_000_000;

/// How often connections that are being reset are looked at: nothing reports that the peer has acknowledged.
const LOOK_NS: u64 = 10_000_000;

/// Taken from one socket in one turn of the loop.
const TAKEN_PER_TURN: usize = 256;

/// A client that has not completed its handshake by then is gone: the kernel has repeated the SYN-ACK as often as `sockets`
/// lets it. A client that is slow all the same repeats its SYN, which begins a new connection.
const ACCEPTING_NS: u64 = 16_000_000_000;

/// A client that was accepted and has not sent anything by then waits for its server: the SYN to that one, which could carry data,
/// leaves without.
const FIRST_DATA_NS: u64 = 20_000_000;

const EVENTS: usize = 1024;

/// Descriptors that are no connections'.
const OWN_DESCRIPTORS: u64 = 64;

/// Tokens from here on are those of multiplexed connections.
const LEGS: u64 = (leg::FIRST_SLOT as u64) << 1;

/// Tokens from here on are not those of connections.
const RESERVED: u64 = u64::MAX - (1 << 32);
const INPUT: u64 = RESERVED;
const SIGNALS: u64 = RESERVED + 1;
/// The first of the tokens of each side's listener and packet socket, in turn.
const SIDES: u64 = RESERVED + 2;

/// Run until SIGTERM, SIGINT, SIGHUP or the end of standard input.
///
/// # Errors
/// A wrong setting if an interface or a congestion control is missing; others if the kernel refuses something.
pub(crate) fn run(input: Input<io::Stdin>, config: Config) -> io::Result<()> {
    let signals = atoll_netio::shutdown_signal::requests().map_err(failed("wait for signals"))?;
    limit_memory(config.memory_bytes(), Config::MEMORY_SETTINGS)
        .map_err(failed("limit the memory"))?;
    let mut proxy = Proxy::open(config)?;
    let output = Output::start().map_err(failed("start a thread"))?;
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
    sides: Vec<SideSockets>,
    connections: Slab<Connection>,
    /// Most sockets of connections.
    sockets_max: usize,
    slots: HashMap<Addresses, usize>,
    /// Whether clients may begin connections.
    admits: bool,
    ids: u64,
    pending: Pending,
    /// Until when, slots and ids of connections whose clients' first data are awaited, in order.
    unopened: VecDeque<(u64, usize, u64)>,
    /// Those with something to do.
    queue: VecDeque<usize>,
    waiting_for_memory: BTreeSet<usize>,
    resetting: BTreeSet<usize>,
    /// When those are looked at next.
    look_at_ns: u64,
    /// To be removed when all events of a turn are served.
    over: Vec<usize>,
    learned: LearnedServers,
    /// Multiplexed connections by their numbers (`LEGS_MAX`); none if there is no other PEP.
    legs: Vec<Leg>,
    /// The number of that in which new streams of a pair of legs are opened.
    current: [usize; PAIRS_MAX],
    /// The pair of legs by which the last connection came. The others are those of another version of the chain: none of their
    /// multiplexed connections is made again.
    pair: usize,
    budget: Budget,
    plumbing: Plumbing,
    sums: Sums,
    marked: Marked<Sums>,
    held: Peak,
    buffered: Peak,
    /// The next connection to be sampled.
    cursor: usize,
}

impl Proxy {
    fn open(config: Config) -> io::Result<Self> {
        let sides = open(&config)?;
        Self::at(sides, config)
    }

    fn at(sides: Vec<SideSockets>, mut config: Config) -> io::Result<Self> {
        let descriptors = raise_descriptor_limit().saturating_sub(OWN_DESCRIPTORS);
        let sockets_max = usize::try_from(descriptors).unwrap_or(usize::MAX);
        config.pending_max = most_pending(&config, sockets_max);
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed("open an epoll"))?;
        let streams_bytes = config.streams_bytes();
        let stream_max = config.between.map_or(0, |between| between.stream_bytes);
        let legs = config.between.map_or_else(Vec::new, |between| {
            // Chains begin with the first pair; others are for changes of chains.
            let pause_ns = between.time_of_ns(multiplexed_unsent_bytes(between.pacing_bit_s) / 4);
            (0..LEGS_MAX)
                .map(|leg| Leg::new(between.connects(), leg == 0, pause_ns))
                .collect()
        });
        let plumbing = Plumbing::new(epoll, streams_bytes).map_err(failed("open a pipe"))?;
        let proxy = Self {
            hosts: Side::BOTH.map(|side| config.hosts.of(side).iter().copied().collect()),
            sides,
            connections: Slab::new(),
            sockets_max,
            slots: HashMap::new(),
            admits: true,
            ids: 0,
            pending: Pending::default(),
            unopened: VecDeque::new(),
            queue: VecDeque::new(),
            waiting_for_memory: BTreeSet::new(),
            resetting: BTreeSet::new(),
            look_at_ns: 0,
            over: Vec::new(),
            learned: LearnedServers::new(config.learned_for_ns),
            legs,
            current: std::array::from_fn(|pair| pair),
            pair: 0,
            budget: Budget::new(streams_bytes, stream_max),
            plumbing,
            sums: Sums::default(),
            marked: Marked::default(),
            held: Peak::default(),
            buffered: Peak::default(),
            cursor: 0,
            config,
        };
        for (number, side) in proxy.sides.iter().enumerate() {
            let token = SIDES + 2 * number as u64;
            proxy.watch(&side.listener, token)?;
            proxy.watch(&side.syns, token + 1)?;
        }
        Ok(proxy)
    }

    fn watch(&self, descriptor: impl rustix::fd::AsFd, token: u64) -> io::Result<()> {
        let token = EventData::new_u64(token);
        match epoll::add(&self.plumbing.epoll, descriptor, token, EventFlags::IN) {
            // A regular file as standard input: it has ended.
            Ok(()) | Err(Errno::PERM) => Ok(()),
            Err(error) => Err(failed("watch a descriptor")(error)),
        }
    }

    fn serve(&mut self, mut input: Input<io::Stdin>, output: &Output) -> io::Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        let mut counters_at_ns = monotonic_ns() + COUNTERS_NS;
        loop {
            self.wait(&mut events, counters_at_ns)?;
            let now_ns = monotonic_ns();
            for event in &events {
                let flags = event.flags;
                match event.data.u64() {
                    SIGNALS => return Ok(()),
                    INPUT => input.read().map_err(failed("read standard input"))?,
                    token if token >= SIDES => self.enter(token - SIDES, now_ns)?,
                    token if token >= LEGS => {
                        if let Some(leg) = self.legs.get_mut(slot_and_peer(token - LEGS).0) {
                            leg.on_events(flags);
                        }
                    }
                    token => self.on_events(token, flags, now_ns),
                }
            }
            while let Some(request) = input.next_request() {
                match request {
                    Ok(request) => self.answer_request(request, output, now_ns),
                    Err(refusal) => output.line(&refusal),
                }
            }
            if input.ended() {
                return Ok(());
            }
            self.retry_legs(now_ns);
            self.receive_frames(now_ns);
            self.work(now_ns);
            self.expire(now_ns);
            self.open_servers(now_ns);
            if now_ns >= counters_at_ns {
                counters_at_ns = (counters_at_ns + COUNTERS_NS).max(now_ns);
                self.sample();
                self.renew_legs(now_ns);
                let figures = self.figures(Peak::take_interval);
                let t_ns = real_time_ns();
                output.repeatable_line(&Message::Counters { t_ns, figures });
            }
            self.sweep();
            self.send_frames(now_ns);
        }
    }

    /// Sleep until a descriptor is ready or something is due.
    fn wait(&self, events: &mut Vec<Event>, counters_at_ns: u64) -> io::Result<()> {
        let now_ns = monotonic_ns();
        let mut until_ns = counters_at_ns;
        if !self.resetting.is_empty() {
            until_ns = until_ns.min(self.look_at_ns);
        }
        if let Some(&(due_ns, ..)) = self.unopened.front() {
            until_ns = until_ns.min(due_ns);
        }
        let memory_waits = !self.waiting_for_memory.is_empty() && !self.plumbing.is_full();
        if let Some(due_ns) = self.legs.iter().filter_map(Leg::due_ns).min() {
            until_ns = until_ns.min(due_ns);
        }
        let legs_have_more = self.legs.iter().any(Leg::has_more);
        let is_busy = !self.queue.is_empty() || !self.over.is_empty();
        if is_busy || memory_waits || legs_have_more {
            until_ns = now_ns;
        }
        let timeout = Duration::from_nanos(until_ns.saturating_sub(now_ns));
        let timeout = Timespec::try_from(timeout).unwrap_or_default();
        events.clear();
        match epoll::wait(&self.plumbing.epoll, spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(failed("wait for events")(error)),
        }
    }

    /// A listener or a packet socket is ready.
    fn enter(&mut self, token: u64, now_ns: u64) -> io::Result<()> {
        let number = (token / 2) as usize;
        if token % 2 == 0 {
            self.accept(number, now_ns);
            return Ok(());
        }
        let mut segments = Vec::new();
        let SideSockets {
            syns, interface, ..
        } = &mut self.sides[number];
        syns.receive(TAKEN_PER_TURN, |packet| {
            segments.extend(FirstSegment::parse(packet.frame, packet.checksum_missing));
        })
        .map_err(failed(format!("receive at {interface}")))?;
        for first in segments {
            self.begin(number, first, now_ns);
        }
        Ok(())
    }

    /// The kernel reports something of a connection.
    fn on_events(&mut self, token: u64, flags: EventFlags, now_ns: u64) {
        let (slot, peer) = slot_and_peer(token);
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        match (peer, &mut connection.client) {
            (Peer::Server, _) if matches!(connection.stage, Stage::Connecting { .. }) => {
                let answer = connection.server.take_error();
                connection.server.on_events(flags);
                // Under load one event in ten thousand carries no error, though the server is unreachable.
                let answer = match (answer, connection.server.progress()) {
                    (Err(error), _) => Err(Refusal::of(&error)),
                    (Ok(()), Some(progress)) if progress.connecting => return,
                    (Ok(()), Some(progress)) if progress.closed => Err(Refusal::Unanswered),
                    (Ok(()), _) => Ok(()),
                };
                self.on_answer(slot, answer, now_ns);
                return;
            }
            (Peer::Server, _) => connection.server.on_events(flags),
            (Peer::Client, Some(client)) => client.on_events(flags),
            (Peer::Client, None) => {}
        }
        match connection.stage {
            Stage::Connecting { .. } | Stage::Accepting => {
                if connection.cannot_be_established() {
                    self.give_up(slot);
                } else if connection.is_unopened_with_data() {
                    self.open_server(slot, now_ns);
                } else {
                    self.update_stream(slot);
                }
            }
            Stage::Over => {}
            _ => self.enqueue(slot),
        }
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
            connection.count(&mut self.sums);
            self.buffered.record(self.plumbing.buffered_bytes);
            self.update_stream(slot);
            match next {
                Next::Wait => {}
                Next::Continue => self.enqueue(slot),
                Next::WaitForMemory => {
                    self.waiting_for_memory.insert(slot);
                }
                Next::CheckAgain => {
                    self.resetting.insert(slot);
                }
                Next::End => {
                    self.resetting.remove(&slot);
                    self.end(slot);
                }
            }
        }
    }

    /// Close the sockets of connections that are over.
    fn sweep(&mut self) {
        for slot in std::mem::take(&mut self.over) {
            let mut connection = self.connections.remove(slot);
            connection.count(&mut self.sums);
            self.close_stream(&mut connection);
            connection.discard(&mut self.plumbing);
            self.slots.remove(&connection.addresses);
        }
    }
}

/// How many connections may be pending: half of all, so that servers that do not answer leave room to those that do.
/// Beyond its backlog the kernel would answer by SYN cookies, without the options of the client.
fn most_pending(config: &Config, sockets_max: usize) -> usize {
    let backlog = std::fs::read_to_string("/proc/sys/net/core/somaxconn");
    let backlog: Option<usize> = backlog.ok().and_then(|text| text.trim().parse().ok());
    let most = config.connections_max.min(backlog.unwrap_or(4096)) / 2;
    config.pending_max.min(most).min(sockets_max / 4).max(1)
}
