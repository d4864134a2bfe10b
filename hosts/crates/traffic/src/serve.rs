// SPDX-License-Identifier: Apache-2.0
//! World server: sends as many bytes as each connection asks for, or receives as many as it announces.
//!
//! A connection sends eight bytes, big-endian: how many bytes it wants. It gets them, then the end of the
//! stream. If the highest bit is set, it sends so many bytes itself, and gets a receipt ([`crate::upload`]).
//! The server closes its half first and waits for the client's half to end before it forgets the connection,
//! so that the last bytes are never cut off by a reset, and `active` counts flows that clients have not
//! finished. A client that sends half a request, or none, or vanishes costs one descriptor until the kernel's
//! keep-alive probes find nobody there; it delays nobody.

use crate::events::{Events, Wake};
use crate::job::{Input, SECOND_NS, emit, log_line, monotonic_ns, realtime_ns};
use crate::socket::{is_not_ready, listen, reset_when_closed};
use crate::upload::Request;
use crate::writes::{Chunks, Writes, Written, write};
use atoll_netio::process::raise_descriptor_limit;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, sockopt};
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Connections that may wait to be accepted: as many as `net.core.somaxconn` of the network namespace lets wait, which
/// caps it (listen(2)); 4096 by default, the channels of a large experiment.
const BACKLOG: i32 = i32::MAX;

/// Accepted in one turn of the loop at most, so that a storm of connections does not hold up the others.
const ACCEPTED_PER_TURN: usize = 256;

/// Silence after which the kernel asks whether a client is still there. Longer than any retransmission that is
/// on its way over a satellite, so the probes only meet connections that are really idle.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(120);

/// Read from one connection in one turn at most.
const READ_BYTES: usize = 1 << 18;

const LISTENER: u64 = u64::MAX - 8;

/// Configuration of `atoll-host serve`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServeConfig {
    /// Address and port to listen on; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// TCP congestion control of every connection.
    pub congestion_control: String,
    /// How every connection writes.
    #[serde(flatten)]
    pub writes: Writes,
    /// Print no counters before `done`: they would pass the network that is measured.
    #[serde(default)]
    pub quiet: bool,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Message {
    Ready { listen: SocketAddr },
    Counters(Counters),
    Done(Counters),
}

/// Counters of the server since its start.
#[derive(Clone, Copy, Debug, Serialize)]
struct Counters {
    t_ns: i64,
    connections: u64,
    active: u64,
    sent_bytes: u64,
    /// Of uploads.
    #[serde(skip_serializing_if = "is_zero")]
    received_bytes: u64,
}

/// Whether a counter is left out of messages.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(crate) fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Serve until the job is stopped.
///
/// # Errors
/// If the address is taken or the congestion control refused.
pub fn serve(config: &ServeConfig, input: Input) -> io::Result<()> {
    config.writes.check()?;
    let _ = raise_descriptor_limit();
    let listener = listen(config.listen, BACKLOG, Some(&config.congestion_control))?;
    // Connections inherit both from the listener, without a system call each (tcp(7)).
    sockopt::set_socket_keepalive(&listener, true)?;
    sockopt::set_tcp_keepidle(&listener, KEEPALIVE_IDLE)?;
    let chunks = config.writes.begin(&listener)?;
    let mut events = Events::for_job(input)?;
    events.add(&listener, LISTENER, EventFlags::IN)?;
    emit(&Message::Ready {
        listen: listener.local_addr()?,
    })?;

    let mut server = Server {
        listener,
        connections: Slab::new(),
        accepted: 0,
        moved: Moved::default(),
        buffer: vec![0; READ_BYTES],
        chunks,
        pauses: BinaryHeap::new(),
        is_paused: false,
    };
    let mut ready = Vec::with_capacity(1024);
    let mut next_second = monotonic_ns() + SECOND_NS;
    while events.wait(&mut ready, Some(server.next_ns().min(next_second)))? == Wake::Work {
        let mut may_accept = false;
        for event in &ready {
            match event.data.u64() {
                LISTENER => may_accept = true,
                token => server.service(&events, token as usize)?,
            }
        }
        server.resume(&events)?;
        // Last, so that the place of a connection closed in this turn goes to a new one only after its event.
        if may_accept {
            server.accept(&events)?;
        }
        if monotonic_ns() >= next_second {
            if !config.quiet {
                emit(&Message::Counters(server.counters()))?;
            }
            next_second = monotonic_ns() + SECOND_NS;
        }
    }
    for (_, connection) in &server.connections {
        reset_when_closed(&connection.stream);
    }
    emit(&Message::Done(server.counters()))
}

/// Payload of all connections.
#[derive(Default)]
struct Moved {
    sent_bytes: u64,
    received_bytes: u64,
}

struct Server {
    listener: TcpListener,
    connections: Slab<Connection>,
    accepted: u64,
    moved: Moved,
    buffer: Vec<u8>,
    /// Of a new connection.
    chunks: Option<Chunks>,
    /// End and connection of pauses between chunks; the connection may be gone.
    pauses: BinaryHeap<Reverse<(u64, usize)>>,
    /// Out of descriptors: not accepting until a connection ends.
    is_paused: bool,
}

impl Server {
    fn counters(&self) -> Counters {
        Counters {
            t_ns: realtime_ns(),
            connections: self.accepted,
            active: self.connections.len() as u64,
            sent_bytes: self.moved.sent_bytes,
            received_bytes: self.moved.received_bytes,
        }
    }

    fn accept(&mut self, events: &Events) -> io::Result<()> {
        for _ in 0..ACCEPTED_PER_TURN {
            let stream = match accept_with(
                &self.listener,
                SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
            ) {
                Ok(socket) => TcpStream::from(socket),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::MFILE | Errno::NFILE) => {
                    log_line(
                        "out of file descriptors: new connections wait until one ends (raise `ulimit -n`)",
                    );
                    events.remove(&self.listener)?;
                    self.is_paused = true;
                    return Ok(());
                }
                // accept(2): errors of the new connection itself, which is gone.
                Err(_) => continue,
            };
            self.accepted += 1;
            let token = self.connections.vacant_key();
            events.add(&stream, token as u64, EventFlags::IN)?;
            self.connections.insert(Connection {
                stream,
                phase: Phase::Requesting {
                    request: [0; 8],
                    received: 0,
                },
                chunks: self.chunks,
                resumes_ns: None,
            });
        }
        Ok(())
    }

    /// The end of the first pause.
    fn next_ns(&self) -> u64 {
        self.pauses
            .peek()
            .map_or(u64::MAX, |Reverse((resumes_ns, _))| *resumes_ns)
    }

    /// Go on with the connections whose pause is over.
    fn resume(&mut self, events: &Events) -> io::Result<()> {
        while self.next_ns() <= monotonic_ns() {
            let Some(Reverse((resumes_ns, token))) = self.pauses.pop() else {
                break;
            };
            let connection = self.connections.get_mut(token);
            if let Some(connection) = connection.filter(|c| c.resumes_ns == Some(resumes_ns)) {
                connection.resumes_ns = None;
                events.modify(&connection.stream, token as u64, EventFlags::OUT)?;
            }
        }
        Ok(())
    }

    fn service(&mut self, events: &Events, token: usize) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(token) else {
            return Ok(());
        };
        let is_over = connection.advance(events, token as u64, &mut self.moved, &mut self.buffer);
        if let Some(resumes_ns) = connection.resumes_ns {
            self.pauses.push(Reverse((resumes_ns, token)));
        }
        if is_over {
            self.connections.try_remove(token);
            if self.is_paused {
                events.add(&self.listener, LISTENER, EventFlags::IN)?;
                self.is_paused = false;
            }
        }
        Ok(())
    }
}

struct Connection {
    stream: TcpStream,
    phase: Phase,
    chunks: Option<Chunks>,
    /// The end of its pause. Only an error wakes it before.
    resumes_ns: Option<u64>,
}

enum Phase {
    /// Waiting for the rest of the request.
    Requesting { request: [u8; 8], received: usize },
    /// So many bytes are still to be handed to the kernel.
    Sending { remaining: u64 },
    /// So many of the client's bytes are still to come.
    Receiving { size: u64, remaining: u64 },
    /// All sent and our half closed; waiting for the client's.
    Closing,
}

impl Connection {
    /// Go on as far as the socket is ready: a bounded amount of work. Whether the connection is over, as one that fails is.
    fn advance(
        &mut self,
        events: &Events,
        token: u64,
        moved: &mut Moved,
        buffer: &mut [u8],
    ) -> bool {
        match self.try_advance(events, token, moved, buffer) {
            Ok(is_over) => is_over,
            Err(error) => !is_not_ready(&error),
        }
    }

    fn try_advance(
        &mut self,
        events: &Events,
        token: u64,
        moved: &mut Moved,
        buffer: &mut [u8],
    ) -> io::Result<bool> {
        if let Phase::Requesting { request, received } = &mut self.phase {
            let count = self.stream.read(&mut request[*received..])?;
            if count == 0 {
                return Ok(true);
            }
            *received += count;
            if *received < request.len() {
                return Ok(false);
            }
            match Request::from_bytes(*request) {
                Request::Download(remaining) => {
                    self.phase = Phase::Sending { remaining };
                    if !self.send(moved)? {
                        events.modify(&self.stream, token, EventFlags::OUT)?;
                    }
                }
                Request::Upload(size) => {
                    self.phase = Phase::Receiving {
                        size,
                        remaining: size,
                    };
                    self.confirm()?;
                }
            }
            return Ok(false);
        }
        if let Phase::Receiving { remaining, .. } = &mut self.phase {
            let most = usize::try_from(*remaining).map_or(buffer.len(), |r| r.min(buffer.len()));
            let count = self.stream.read(&mut buffer[..most])?;
            *remaining -= count as u64;
            moved.received_bytes += count as u64;
            self.confirm()?;
            return Ok(count == 0);
        }
        if let Phase::Sending { .. } = self.phase {
            if self.resumes_ns.is_some() {
                return Ok(true);
            }
            if self.send(moved)? {
                events.modify(&self.stream, token, EventFlags::IN)?;
            } else if self.resumes_ns.is_some() {
                events.modify(&self.stream, token, EventFlags::empty())?;
            }
            return Ok(false);
        }
        Ok(self.stream.read(&mut [0; 4096])? == 0)
    }

    /// Write once, or begin a pause; whether everything is sent and our half closed.
    fn send(&mut self, moved: &mut Moved) -> io::Result<bool> {
        let Phase::Sending { remaining } = &mut self.phase else {
            return Ok(true);
        };
        if *remaining > 0 {
            match write(&self.stream, &mut self.chunks, *remaining)? {
                Written::Bytes(count) => {
                    *remaining -= count;
                    moved.sent_bytes += count;
                }
                Written::NotReady => {}
                Written::PausedUntil(next_ns) => self.resumes_ns = Some(next_ns),
            }
        }
        if *remaining > 0 {
            return Ok(false);
        }
        self.stream.shutdown(Shutdown::Write)?;
        self.phase = Phase::Closing;
        Ok(true)
    }

    /// If all of the client's bytes have come, send the receipt and close our half. A new send buffer has room for it.
    fn confirm(&mut self) -> io::Result<()> {
        if let Phase::Receiving { size, remaining: 0 } = self.phase {
            self.stream.write_all(&size.to_be_bytes())?;
            self.stream.shutdown(Shutdown::Write)?;
            self.phase = Phase::Closing;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{assert_in_contract, configurations};

    #[test]
    fn messages_are_those_of_the_contract() {
        let configs: Vec<ServeConfig> = configurations(
            "serve",
            &["paced", "quiet", "write_chunk_bytes", "write_rate_bit_s"],
        );
        let listen = configs[0].listen;
        assert_in_contract("serve", "serve", &Message::Ready { listen });
        let counters = Counters {
            t_ns: 1_795_254_133_941_973_760,
            connections: 3904,
            active: 99,
            sent_bytes: 116_481_092,
            received_bytes: 0,
        };
        assert_in_contract("serve", "serve", &Message::Counters(counters));
        let last = Counters {
            t_ns: 1_795_254_138_936_818_342,
            connections: 15_059,
            active: 0,
            sent_bytes: 805_341_745,
            received_bytes: 0,
        };
        assert_in_contract("serve", "serve", &Message::Done(last));
        let uploads = Counters {
            received_bytes: 10_000_000,
            ..last
        };
        assert_in_contract("serve", "serve", &Message::Done(uploads));
    }
}
