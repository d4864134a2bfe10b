// SPDX-License-Identifier: Apache-2.0
//! The proxy on real sockets, with a multiplexed connection that the test speaks the other end of.

use super::*;
use crate::config::Change;
use crate::end::End;
use crate::messages::Content;
use crate::multiplex::frame::{Frame, Message};
use atoll_contract_examples::examples;
use socket2::{Domain, SockRef, Socket, Type};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

const CLIENT: &str = "10.20.0.1:4321";
const SERVER: &str = "10.10.0.1:80";

/// More than two sockets with small buffers hold.
const LONG: [u8; 1 << 14] = [7; 1 << 14];

struct Bench {
    proxy: Proxy,
    peer: TcpStream,
    /// Received from the proxy, not looked at.
    received: Vec<u8>,
}

/// Both ends of a connection that holds little: the proxy's, and the other one.
fn pair() -> (Socket, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    other.set_recv_buffer_size(4096).unwrap();
    other.set_tcp_nodelay(true).unwrap();
    other
        .connect(&listener.local_addr().unwrap().into())
        .unwrap();
    let own = Socket::from(listener.accept().unwrap().0);
    own.set_send_buffer_size(4096).unwrap();
    own.set_nonblocking(true).unwrap();
    other.set_nonblocking(true).unwrap();
    (own, other.into())
}

fn config() -> Config {
    let example = examples("pep", "keeper")
        .into_iter()
        .find(|example| example["between"].is_object());
    let mut example = example.unwrap();
    example["between"]["padding_bytes"] = 0.into();
    Config::parse(&example.to_string()).unwrap()
}

impl Bench {
    /// A proxy whose multiplexed connection has just begun.
    fn begun() -> Self {
        Self::with(config())
    }

    fn with(config: Config) -> Self {
        let proxy = Proxy::at(Vec::new(), config).unwrap();
        let (socket, peer) = pair();
        let mut bench = Self {
            proxy,
            peer,
            received: Vec::new(),
        };
        bench.proxy.accept_leg(0, socket, monotonic_ns());
        bench
    }

    /// One whose multiplexed connection is up.
    fn up() -> Self {
        let mut bench = Self::begun();
        bench.send(&[(0, Message::Hello)]);
        assert!(bench.proxy.legs[0].is_up());
        bench
    }

    /// The other PEP connects again.
    fn reconnect(&mut self) {
        let (socket, peer) = pair();
        self.peer = peer;
        self.received.clear();
        self.proxy.accept_leg(0, socket, monotonic_ns());
        self.send(&[(0, Message::Hello)]);
        assert!(self.proxy.legs[0].is_up());
    }

    /// An established connection that is a stream of the other PEP's: its client, its slot and the stream's number.
    fn connection(&mut self) -> (TcpStream, usize, u32) {
        let (socket, client) = pair();
        let proxy = &mut self.proxy;
        let slot = proxy.connections.vacant_key();
        let addresses = (CLIENT.parse().unwrap(), SERVER.parse().unwrap());
        let server = End::of_stream(slot, Peer::Server);
        proxy.insert(addresses, (0, Side::Island), server, monotonic_ns());
        proxy.open_stream(slot);
        let connection = &mut proxy.connections[slot];
        let watched = End::watch(&proxy.plumbing.epoll, socket, slot, Peer::Client);
        connection.client = Some(watched.unwrap());
        proxy.pending.remove(slot, connection);
        connection.stage = Stage::Open;
        let id = connection.stream.as_ref().unwrap().id;
        self.settle();
        (client, slot, id)
    }

    /// A client that was accepted early and whose server has not answered: both of its ends, and the stream's number.
    fn accepted_early(&mut self) -> (TcpStream, u32) {
        let (client, slot, id) = self.connection();
        let proxy = &mut self.proxy;
        proxy.pending.add(slot, &proxy.connections[slot]);
        proxy.connections[slot].stage = Stage::Connecting {
            first: None,
            released: true,
        };
        (client, id)
    }

    /// The other PEP says something, and the proxy has the time to notice.
    fn send(&mut self, said: &[(u32, Message<'_>)]) {
        let mut bytes = Vec::new();
        for &(stream, message) in said {
            Frame { stream, message }.put(&mut bytes);
        }
        while !bytes.is_empty() {
            let taken = self.peer.write(&bytes).unwrap_or(0);
            bytes.drain(..taken);
            self.settle();
        }
    }

    /// What the other PEP has received: kinds and streams.
    fn received(&mut self) -> Vec<(u32, String)> {
        let mut bytes = std::mem::take(&mut self.received);
        let _ = self.peer.read_to_end(&mut bytes);
        let (mut at, mut found) = (0, Vec::new());
        while let Some((frame, length)) = Frame::parse(&bytes[at..]).unwrap() {
            let name = format!("{:?}", frame.message);
            let name = name.split([' ', '(']).next().unwrap_or_default().to_owned();
            found.push((frame.stream, name));
            at += length;
        }
        self.received = bytes.split_off(at);
        found
    }

    /// Turns, until nothing has happened for some.
    fn settle(&mut self) {
        let mut idle = 0;
        while idle < 3 {
            let is_idle = self.turn(monotonic_ns()) == 0;
            idle = if is_idle { idle + 1 } else { 0 };
        }
    }

    /// What the proxy's loop does, at this time. Returns how many events there were.
    fn turn(&mut self, now_ns: u64) -> usize {
        let proxy = &mut self.proxy;
        let mut events = Vec::with_capacity(EVENTS);
        let until_ns = monotonic_ns() + 3_000_000;
        proxy.wait(&mut events, until_ns).unwrap();
        for event in &events {
            match event.data.u64() {
                token if token >= LEGS => {
                    proxy.legs[slot_and_peer(token - LEGS).0].on_events(event.flags);
                }
                token => proxy.on_events(token, event.flags, now_ns),
            }
        }
        proxy.receive_frames(now_ns);
        proxy.work(now_ns);
        proxy.sweep();
        proxy.send_frames(now_ns);
        events.len()
    }
}

/// The configuration of the PEP that connects.
fn connecting() -> Config {
    let mut config = config();
    config.between.as_mut().unwrap().side = Side::World;
    config
}

#[test]
fn a_multiplexed_connection_is_made_again_by_the_pair_of_legs_that_connections_take() {
    for used in [0, 1] {
        let mut bench = Bench::with(connecting());
        bench.send(&[(0, Message::Hello)]);
        bench
            .proxy
            .is_multiplexed(used, Side::World, monotonic_ns());
        reset(std::mem::replace(&mut bench.peer, pair().1));
        bench.settle();
        assert!(!bench.proxy.legs[0].is_up());
        assert_eq!(bench.proxy.legs[0].due_ns().is_some(), used == 0);
    }
}

#[test]
fn a_multiplexed_connection_that_is_being_made_ends_when_connections_take_the_other_pair_of_legs() {
    let mut bench = Bench::with(connecting());
    assert!(bench.proxy.legs[0].is_beginning());
    bench.proxy.is_multiplexed(1, Side::World, monotonic_ns());
    assert!(bench.proxy.legs[0].end.is_none());
    assert!(bench.proxy.legs[1].due_ns().is_some());
}

#[test]
fn a_connection_that_outlives_its_leg_leaves_the_next_one_alone() {
    let mut bench = Bench::up();
    let (mut client, slot, id) = bench.connection();
    bench.send(&[(id, Message::Data(&LONG)); 4]);
    bench.reconnect();
    let stage = &bench.proxy.connections[slot].stage;
    assert!(matches!(stage, Stage::Resetting { .. }), "{stage:?}");
    bench.received();
    // The other PEP has restarted, and so have the numbers of its streams.
    bench.proxy.legs[0].record_opened(id, 77);
    client.write_all(b"late").unwrap();
    bench.settle();
    assert_eq!(bench.received(), []);
    bench.turn(monotonic_ns() + 2 * bench.proxy.config.flush_ns);
    bench.settle();
    assert!(bench.proxy.connections.is_empty());
    assert_eq!(bench.proxy.legs[0].slot(id), Some(77));
    assert_eq!(bench.received(), []);
}

impl Bench {
    /// The other PEP has made a successor of its connection; the old one's other end.
    fn renewed(&mut self) -> TcpStream {
        let (socket, peer) = pair();
        let old = std::mem::replace(&mut self.peer, peer);
        self.received.clear();
        self.proxy.accept_leg(PAIRS_MAX, socket, monotonic_ns());
        self.send(&[(0, Message::Hello)]);
        assert!(self.proxy.legs[PAIRS_MAX].is_up());
        old
    }
}

#[test]
fn a_successor_takes_new_streams_and_those_of_the_old_one_go_on() {
    let mut bench = Bench::up();
    let (mut client, _, id) = bench.connection();
    bench.received();
    let new = bench.renewed();
    let new = std::mem::replace(&mut bench.peer, new);
    assert_eq!(bench.received(), [(0, "Last".to_owned())]);
    bench.send(&[(id, Message::Data(b"still here")), (id, Message::Fin)]);
    let mut got = [0; 10];
    client.set_nonblocking(false).unwrap();
    client.read_exact(&mut got).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    bench.settle();
    assert_eq!(bench.received(), [(id, "Fin".to_owned())]);
    // The other PEP, which has no stream in it any more, ends the connection.
    bench.peer.shutdown(std::net::Shutdown::Write).unwrap();
    bench.settle();
    assert!(bench.proxy.legs[0].end.is_none());
    assert_eq!(client.read(&mut got).unwrap(), 0, "no reset");
    bench.settle();
    let sums = bench.proxy.sums;
    assert_eq!((sums.own_resets, sums.multiplex_losses), (0, 0));
    bench.peer = new;
    bench.received();
    let (_, slot, _) = bench.connection();
    let stream = bench.proxy.connections[slot].stream.as_ref().unwrap();
    assert_eq!(stream.leg, PAIRS_MAX);
}

#[test]
fn a_stream_that_has_not_ended_is_reset_with_an_old_connection() {
    let mut bench = Bench::up();
    let (mut client, _, _) = bench.connection();
    let old = bench.renewed();
    drop(old);
    bench.settle();
    assert_eq!(
        client.read(&mut [0]).unwrap(),
        0,
        "the test's sockets linger"
    );
    assert_eq!(bench.proxy.sums.own_resets, 1);
    assert!(bench.proxy.legs[PAIRS_MAX].is_up());
}

#[test]
fn a_connection_and_its_successor_share_the_rate_while_both_have_a_backlog() {
    const RATE: u64 = 8_000_000;
    let mut config = config();
    config.between.as_mut().unwrap().pacing_bit_s = Some(RATE);
    let mut bench = Bench::with(config);
    bench.send(&[(0, Message::Hello)]);
    let (mut first, _, _) = bench.connection();
    let mut old = bench.renewed();
    let (mut second, _, _) = bench.connection();
    let rates = |bench: &Bench| [0, PAIRS_MAX].map(|leg| bench.proxy.legs[leg].paced_bit_s);
    first.write_all(&LONG).unwrap();
    bench.settle();
    assert_eq!(rates(&bench), [Some(RATE); 2], "the successor is idle");
    second.write_all(&LONG).unwrap();
    bench.settle();
    assert_eq!(rates(&bench), [Some(RATE / 2); 2]);
    while bench.proxy.legs[0].has_backlog() {
        let _ = old.read(&mut [0; 1 << 14]);
        bench.settle();
    }
    bench.settle();
    assert_eq!(rates(&bench), [Some(RATE); 2]);
}

#[test]
fn an_idle_connection_is_renewed_once_and_a_busy_one_is_not() {
    const LATE_NS: u64 = 1_000_000_000;
    let mut bench = Bench::up();
    bench.send(&[(0, Message::Renew)]); // no packet of a test's socket is lost, which is this proxy's own reason
    let (client, slot, id) = bench.connection();
    let now_ns = monotonic_ns();
    for after_ns in [0, LATE_NS] {
        bench.proxy.renew_legs(now_ns + after_ns);
    }
    bench.settle();
    bench.received();
    bench.proxy.end(slot);
    drop(client);
    let end = [(id, "Rst".to_owned())];
    let is_told = |bench: &mut Bench| {
        bench.settle();
        bench.received() == end
    };
    assert!(
        (0..100).any(|_| is_told(&mut bench)),
        "the kernel may wait for an acknowledgement"
    );
    for (after_ns, received) in [(0, 0), (LATE_NS / 2, 0), (LATE_NS, 1), (2 * LATE_NS, 0)] {
        bench.received();
        bench.proxy.renew_legs(now_ns + LATE_NS + after_ns);
        bench.settle();
        let frames = bench.received();
        assert_eq!(
            frames,
            vec![(0, "Renew".to_owned()); received],
            "{after_ns}"
        );
    }
}

fn reset(socket: TcpStream) {
    SockRef::from(&socket)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(socket);
}

#[test]
fn what_a_client_sent_before_its_reset_is_delivered_when_its_server_answers() {
    let mut bench = Bench::up();
    bench.received();
    let (mut client, id) = bench.accepted_early();
    client.write_all(b"a request").unwrap();
    reset(client);
    bench.settle();
    let said = [(id, "Open".to_owned()), (id, "Data".to_owned())];
    assert_eq!(bench.received(), said);
    bench.send(&[(id, Message::Ok { credit: 1 })]);
    assert_eq!(bench.received(), [(id, "Rst".to_owned())]);
    assert_eq!(bench.proxy.sums.client_resets, 1);
    assert!(bench.proxy.connections.is_empty());
}

#[test]
fn a_client_that_was_reset_and_has_sent_nothing_is_given_up() {
    let mut bench = Bench::up();
    bench.received();
    let (client, id) = bench.accepted_early();
    reset(client);
    bench.settle();
    let said = [(id, "Open".to_owned()), (id, "Rst".to_owned())];
    assert_eq!(bench.received(), said);
    assert_eq!(bench.proxy.sums.unaccepted_connections, 1);
    assert!(bench.proxy.connections.is_empty());
}

#[test]
fn nothing_is_sent_of_a_stream_that_was_reset() {
    let mut bench = Bench::up();
    let (mut client, _, id) = bench.connection();
    bench.send(&[(id, Message::Data(&LONG)); 4]);
    bench.send(&[(id, Message::Rst)]);

    bench.received();

    client.write_all(b"late").unwrap();
    bench.settle();
    assert_eq!(bench.received(), []);
    assert_eq!(bench.proxy.legs[0].slot(id), None);
}

#[test]
fn a_peer_says_hello_once_and_first() {
    for said in [
        [(0, Message::Hello), (0, Message::Hello)],
        [(0, Message::Padding(&[0])), (0, Message::Hello)],
    ] {
        let mut bench = Bench::begun();
        bench.send(&said);
        assert!(bench.proxy.legs[0].end.is_none(), "{said:?}");
    }
}

/// For a server that is no host of the experiment.
fn foreign() -> Message<'static> {
    Message::Open {
        client: "192.0.2.1:1".parse().unwrap(),
        server: "192.0.2.2:80".parse().unwrap(),
        credit: 1,
    }
}

#[test]
fn a_peer_opens_streams_of_its_own_numbers_only() {
    let mut bench = Bench::up();
    bench.received();
    bench.send(&[(1, foreign())]);
    assert_eq!(bench.received(), [(1, "Refused".to_owned())]);
    bench.send(&[(2, foreign())]);
    assert!(!bench.proxy.legs[0].is_up());
}

#[test]
fn what_came_before_the_end_of_a_leg_is_delivered() {
    for is_reset in [false, true] {
        let mut bench = Bench::up();
        let (mut client, _, id) = bench.connection();
        bench.received();
        let mut bytes = Vec::new();
        let message = Message::Data(b"last words");
        Frame {
            stream: id,
            message,
        }
        .put(&mut bytes);
        bench.peer.write_all(&bytes).unwrap();
        if is_reset {
            SockRef::from(&bench.peer)
                .set_linger(Some(Duration::ZERO))
                .unwrap();
        }
        let (_, closed) = pair();
        bench.peer = closed;
        bench.settle();
        let mut got = Vec::new();
        let _ = client.read_to_end(&mut got);
        assert_eq!(got, b"last words", "reset: {is_reset}");
        assert!(bench.proxy.legs[0].end.is_none());
        assert_eq!(bench.proxy.sums.multiplex_losses, 1);
    }
}

#[test]
fn a_peer_that_does_not_read_is_not_read() {
    const OPENS: usize = 400_000;
    let mut bench = Bench::up();
    let mut said = Vec::new();
    for stream in 0..OPENS {
        let stream = 2 * stream as u32 + 1;
        let message = foreign();
        Frame { stream, message }.put(&mut said);
    }
    let mut most = 0;
    let (mut at, mut turns) = (0, 0);
    while turns < 100 {
        let taken = bench.peer.write(&said[at..]).unwrap_or(0);
        at += taken;
        turns = if taken == 0 { turns + 1 } else { 0 };
        bench.turn(monotonic_ns());
        most = most.max(bench.proxy.legs[0].unsent_bytes());
    }
    assert!(most > leg::OUTGOING_MAX_BYTES, "not tried: {most}");
    assert!(most < 2 * leg::OUTGOING_MAX_BYTES, "{most}");
    SockRef::from(&bench.peer)
        .set_recv_buffer_size(1 << 20)
        .unwrap();
    let mut answers = 0;
    while answers < OPENS {
        at += bench.peer.write(&said[at..]).unwrap_or(0);
        bench.turn(monotonic_ns());
        let frames = bench.received();
        answers += frames.iter().filter(|(_, name)| name == "Refused").count();
    }
}

#[test]
fn what_was_sent_takes_no_memory_although_more_always_waits() {
    const SENT: usize = 64 * LONG.len();
    let mut bench = Bench::up();
    let (mut client, _, id) = bench.connection();
    bench.send(&[(id, Message::Credit(SENT as u32))]);
    client.set_nonblocking(true).unwrap();
    let mut received = 0;
    while received < SENT / 2 {
        while client.write(&LONG).is_ok() {}
        bench.turn(monotonic_ns());
        received += bench.peer.read(&mut [0; 4096]).unwrap_or(0);
        let memory = bench.proxy.legs[0].outgoing.capacity();
        assert!(memory <= SENT / 4, "{memory} after {received} bytes");
    }
}

#[test]
fn padding_is_made_piece_by_piece() {
    const PIECES: usize = 20;
    let mut config = config();
    config.between.as_mut().unwrap().padding_bytes = (PIECES * LONG.len()) as u32;
    let mut bench = Bench::with(config);
    bench.send(&[(0, Message::Hello)]);
    assert!(bench.proxy.legs[0].unsent_bytes() < 5 * LONG.len());
    SockRef::from(&bench.peer)
        .set_recv_buffer_size(1 << 20)
        .unwrap();
    let mut pieces = 0;
    while pieces < PIECES {
        bench.turn(monotonic_ns());
        let frames = bench.received();
        pieces += frames.iter().filter(|(_, name)| name == "Padding").count();
    }
}

#[test]
fn settings_change_while_connections_go_on() {
    let mut bench = Bench::up();
    let (client, slot, _) = bench.connection();
    let change = |pending_max, silence_ns| Change {
        pending_max,
        silence_ns,
        flush_ns: Some(1),
        ..Change::default()
    };
    let refused = bench.proxy.change(&change(Some(7), Some(1)));
    assert!(matches!(refused, Content::Error { error } if error.starts_with("silence_ns: ")));
    assert_ne!(bench.proxy.config.pending_max, 7);
    let done = bench.proxy.change(&change(Some(7), Some(20_000_000_000)));
    assert!(matches!(done, Content::Nothing {}));
    let config = &bench.proxy.config;
    assert_eq!((config.pending_max, config.flush_ns), (7, 1));
    let connection = &bench.proxy.connections[slot];
    let socket = connection.client.as_ref().unwrap().descriptor().unwrap();
    let idle = SockRef::from(&socket).tcp_keepalive_time().unwrap();
    assert_eq!(idle, Duration::from_secs(10));
    let leg = bench.proxy.legs[0]
        .end
        .as_ref()
        .unwrap()
        .descriptor()
        .unwrap();
    let timeout = SockRef::from(&leg).tcp_user_timeout().unwrap();
    assert_eq!(timeout, Some(Duration::from_secs(20)));
    assert!(connection.is_established());
    let day = bench.proxy.change(&change(None, Some(86_400_000_000_000)));
    assert!(matches!(day, Content::Nothing {}), "the longest silence");
    drop(client);
}
