// SPDX-License-Identifier: Apache-2.0
//! One large transfer, or one after another, either end.
//!
//! The sender listens, sends its bytes to the first who connects, and closes. The receiver is the one to believe:
//! behind a connection-splitting PEP the sender is finished when the near PEP has the data. Of an upload the far end is
//! `atoll-host serve`, and the near end the one to believe: it waits for the receipt ([`crate::upload`]).

use crate::events::{Events, Wake};
use crate::job::{
    Input, SECOND_NS, emit, failed, monotonic_at, monotonic_ns, realtime_ns, wrong_setting,
};
use crate::socket::{check_congestion_control, connect, is_not_ready, listen, reset_when_closed};
use crate::upload::{Receipt, acknowledged_bytes, announce};
use crate::writes::{Chunks, Writes, Written, write};
use rustix::event::epoll::EventFlags;
use rustix::net::{SocketFlags, accept_with};
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

/// Read in one call at most.
const BUFFER_BYTES: usize = 1 << 18;

/// While more is missing, the receiver is woken for so much at a time.
const LOW_WATER_BYTES: u16 = 16_384;

const SOCKET: u64 = 0;

/// Configuration of `atoll-host transfer`.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase", deny_unknown_fields)]
pub enum TransferConfig {
    /// The end that has the bytes.
    Send(SendConfig),
    /// The end that gets and times them.
    Receive(ReceiveConfig),
    /// The end that sends its bytes to a server, and times them.
    Upload(UploadConfig),
}

/// Configuration of the sender.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendConfig {
    /// Address and port to listen on; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// How many bytes to send.
    pub size_bytes: u64,
    /// TCP congestion control of the connection.
    pub congestion_control: String,
    /// Send to one receiver after another until the job is to stop.
    #[serde(default)]
    pub repeats: bool,
    /// How it writes.
    #[serde(flatten)]
    pub writes: Writes,
}

/// Configuration of the end that connects: the receiver.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiveConfig {
    /// Address and port of the other end.
    pub connect: SocketAddr,
    /// How many bytes there are to transfer.
    pub size_bytes: u64,
    /// When to connect, real time; an instant in the past means at once.
    pub start_at_ns: i64,
    /// Time from the start of one transfer to that of the next, until the job is to stop; a start during a transfer is
    /// left out.
    #[serde(default)]
    pub every_ns: Option<u64>,
    /// Print no progress.
    #[serde(default)]
    pub quiet: bool,
    /// TCP congestion control of this end's own segments; the machine's default if absent.
    pub congestion_control: Option<String>,
}

/// Configuration of the end that uploads.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UploadConfig {
    /// As of the receiver, with a congestion control.
    #[serde(flatten)]
    pub client: ReceiveConfig,
    /// How it writes.
    #[serde(flatten)]
    pub writes: Writes,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Message {
    Ready {
        #[serde(skip_serializing_if = "Option::is_none")]
        listen: Option<SocketAddr>,
    },
    Progress {
        t_ns: i64,
        received_bytes: u64,
    },
}

/// Counters of the sender.
#[expect(clippy::struct_field_names, reason = "the names of the message")]
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(tag = "type", rename = "done")]
struct Sent {
    sent_bytes: u64,
    /// Everything was sent and the receiver closed its half after it.
    complete: bool,
    /// From the beginning of the connection until the kernel had taken the last byte; not of repeated transfers.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
}

/// Counters of the end that connects; instants are real time.
#[expect(clippy::struct_field_names, reason = "the names of the message")]
#[derive(Clone, Debug, Default, Serialize)]
#[serde(tag = "type", rename = "done")]
struct Received {
    received_bytes: u64,
    /// Exactly the bytes expected came, then the end of the stream; or the receipt confirms them.
    complete: bool,
    start_ns: Option<i64>,
    first_byte_ns: Option<i64>,
    /// When the last byte came, or of an upload the receipt.
    end_ns: Option<i64>,
    /// From the beginning of the connection to that instant, by the monotonic clock.
    seconds: Option<f64>,
    rate_bit_s: Option<f64>,
    /// Why a repeated transfer broke off.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The same two instants (monotonic): the real-time clock may be set meanwhile.
    #[serde(skip)]
    monotonic_start_ns: u64,
    #[serde(skip)]
    monotonic_end_ns: u64,
}

/// Run one end of a transfer until it is complete or the job is to stop.
///
/// # Errors
/// If the connection cannot be made or breaks (after `done` with the bytes so far).
pub fn transfer(config: &TransferConfig, input: Input) -> io::Result<()> {
    match config {
        TransferConfig::Send(config) => send(config, input),
        TransferConfig::Receive(config) => transfer_as_client(config, None, input),
        TransferConfig::Upload(config) => {
            config.writes.check()?;
            if config.client.congestion_control.is_none() {
                return Err(wrong_setting("congestion_control: an upload needs one"));
            }
            transfer_as_client(&config.client, Some(&config.writes), input)
        }
    }
}

fn send(config: &SendConfig, input: Input) -> io::Result<()> {
    config.writes.check()?;
    let listener = listen(config.listen, 1, Some(&config.congestion_control))?;
    let chunks = config.writes.begin(&listener)?;
    let mut events = Events::for_job(input)?;
    events.add(&listener, SOCKET, EventFlags::IN)?;
    emit(&Message::Ready {
        listen: Some(listener.local_addr()?),
    })?;

    if config.repeats {
        return send_repeatedly(&mut events, &listener, config.size_bytes, chunks);
    }
    let mut sent = Sent::default();
    let Some(stream) = accept(&mut events, &listener)? else {
        return emit(&sent);
    };
    drop(listener);
    let result = send_all(&mut events, &stream, config.size_bytes, chunks, &mut sent);
    emit(&sent)?;
    result.map_err(|error| broken_off_error(&error, sent.sent_bytes, "sent", config.size_bytes))
}

/// Send to one receiver after another. The receiver reports a transfer that breaks off.
fn send_repeatedly(
    events: &mut Events,
    listener: &TcpListener,
    size_bytes: u64,
    chunks: Option<Chunks>,
) -> io::Result<()> {
    let mut total = Sent::default();
    while let Some(stream) = accept(events, listener)? {
        events.remove(listener)?;
        let mut sent = Sent::default();
        let result = send_all(events, &stream, size_bytes, chunks, &mut sent);
        total.sent_bytes += sent.sent_bytes;
        total.complete = sent.complete && result.is_ok();
        events.add(listener, SOCKET, EventFlags::IN)?;
    }
    emit(&total)
}

/// The next receiver's connection; none if the job is to stop.
fn accept(events: &mut Events, listener: &TcpListener) -> io::Result<Option<TcpStream>> {
    while !woken_to_stop(events, None)? {
        // A client that gave up between connecting and now is not the receiver.
        if let Ok(socket) = accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            return Ok(Some(TcpStream::from(socket)));
        }
    }
    Ok(None)
}

fn send_all(
    events: &mut Events,
    mut stream: &TcpStream,
    size_bytes: u64,
    mut chunks: Option<Chunks>,
    sent: &mut Sent,
) -> io::Result<()> {
    let begin_ns = monotonic_ns();
    events.add(stream, SOCKET, EventFlags::OUT)?;
    while sent.sent_bytes < size_bytes {
        let until_ns = match write(stream, &mut chunks, size_bytes - sent.sent_bytes)? {
            Written::Bytes(count) => {
                sent.sent_bytes += count;
                continue;
            }
            Written::NotReady => None,
            Written::PausedUntil(next_ns) => {
                events.modify(stream, SOCKET, EventFlags::empty())?;
                Some(next_ns)
            }
        };
        if woken_to_stop(events, until_ns)? {
            reset_when_closed(stream);
            return Ok(());
        }
        if until_ns.is_some() {
            if let Some(error) = stream.take_error()? {
                return Err(error); // the receiver has reset the connection
            }
            events.modify(stream, SOCKET, EventFlags::OUT)?;
        }
    }
    sent.seconds = Some((monotonic_ns() - begin_ns) as f64 / SECOND_NS as f64);
    stream.shutdown(Shutdown::Write)?;
    events.modify(stream, SOCKET, EventFlags::IN)?;
    loop {
        match stream.read(&mut [0; 64]) {
            Ok(0) => {
                sent.complete = true;
                return Ok(());
            }
            Ok(_) => {}
            Err(error) if is_not_ready(&error) => {
                if woken_to_stop(events, None)? {
                    reset_when_closed(stream);
                    return Ok(());
                }
            }
            Err(error) => return Err(error),
        }
    }
}

fn woken_to_stop(events: &mut Events, until_ns: Option<u64>) -> io::Result<bool> {
    Ok(events.wait(&mut Vec::with_capacity(4), until_ns)? == Wake::Stop)
}

/// Receive, or if there are `writes`, send.
fn transfer_as_client(
    config: &ReceiveConfig,
    writes: Option<&Writes>,
    input: Input,
) -> io::Result<()> {
    if let Some(name) = &config.congestion_control {
        check_congestion_control(name)?;
    }
    let mut events = Events::for_job(input)?;
    emit(&Message::Ready { listen: None })?;

    let start_ns = monotonic_at(config.start_at_ns);
    if let Some(every_ns) = config.every_ns {
        return transfer_repeatedly(&mut events, config, writes, start_ns, every_ns);
    }
    let mut received = Received::default();
    if stopped_before(&mut events, start_ns)? {
        return emit(&received);
    }
    let result = transfer_once(&mut events, config, writes, &mut received);
    received.compute_rate();
    emit(&received)?;
    result?.map_err(|error| client_error(config, writes, &received, error))
}

/// Make one transfer after another, and print `done` after each.
fn transfer_repeatedly(
    events: &mut Events,
    config: &ReceiveConfig,
    writes: Option<&Writes>,
    mut start_ns: u64,
    every_ns: u64,
) -> io::Result<()> {
    while !stopped_before(events, start_ns)? {
        let mut received = Received::default();
        let result = transfer_once(events, config, writes, &mut received)?;
        received.compute_rate();
        let error = result.err();
        received.error =
            error.map(|error| client_error(config, writes, &received, error).to_string());
        emit(&received)?;
        start_ns += every_ns * ((monotonic_ns() - start_ns) / every_ns + 1);
    }
    Ok(())
}

/// Wait until an instant; true: the job is to stop.
fn stopped_before(events: &mut Events, start_ns: u64) -> io::Result<bool> {
    while monotonic_ns() < start_ns {
        if woken_to_stop(events, Some(start_ns))? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn client_error(
    config: &ReceiveConfig,
    writes: Option<&Writes>,
    received: &Received,
    error: io::Error,
) -> io::Error {
    let (doing, done) = match writes {
        None => ("receive from", "received"),
        Some(_) => ("send to", "acknowledged"),
    };
    if received.received_bytes == 0 {
        return failed(format!("{doing} {}", config.connect))(error);
    }
    broken_off_error(&error, received.received_bytes, done, config.size_bytes)
}

/// Transfer until everything is there or the job is to stop; an error of the connection, within, is no failure of this program.
fn transfer_once(
    events: &mut Events,
    config: &ReceiveConfig,
    writes: Option<&Writes>,
    received: &mut Received,
) -> io::Result<io::Result<()>> {
    received.start_ns = Some(realtime_ns());
    received.monotonic_start_ns = monotonic_ns();
    let stream = match connect(config.connect, config.congestion_control.as_deref()) {
        Ok(stream) => stream,
        Err(error) => return Ok(Err(error)),
    };
    match writes {
        None => receive_all(events, stream, config, received),
        Some(writes) => upload_all(events, &stream, config, writes, received),
    }
}

fn receive_all(
    events: &mut Events,
    stream: TcpStream,
    config: &ReceiveConfig,
    received: &mut Received,
) -> io::Result<io::Result<()>> {
    events.add(&stream, SOCKET, EventFlags::IN)?;
    let mut incoming = Receiver {
        stream,
        buffer: vec![0; BUFFER_BYTES],
        low_water: false,
    };
    let mut ready = Vec::with_capacity(4);
    let mut tick_ns = monotonic_ns() + SECOND_NS;
    loop {
        if events.wait(&mut ready, Some(tick_ns))? == Wake::Stop {
            reset_when_closed(&incoming.stream);
            return Ok(Ok(()));
        }
        if !ready.is_empty() {
            match incoming.read(config.size_bytes, received) {
                Ok(true) => return Ok(Ok(())),
                Ok(false) => {}
                Err(error) if is_not_ready(&error) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
        print_progress(config, received, &mut tick_ns)?;
    }
}

/// Once a second, unless it is quiet.
fn print_progress(
    config: &ReceiveConfig,
    received: &Received,
    tick_ns: &mut u64,
) -> io::Result<()> {
    if monotonic_ns() >= *tick_ns {
        if !config.quiet {
            emit(&Message::Progress {
                t_ns: realtime_ns(),
                received_bytes: received.received_bytes,
            })?;
        }
        *tick_ns = monotonic_ns() + SECOND_NS;
    }
    Ok(())
}

/// Until the receipt, `received` counts what is acknowledged, by a connection-splitting PEP if there is one.
fn upload_all(
    events: &mut Events,
    stream: &TcpStream,
    config: &ReceiveConfig,
    writes: &Writes,
    received: &mut Received,
) -> io::Result<io::Result<()>> {
    let chunks = writes.begin(stream)?;
    events.add(stream, SOCKET, EventFlags::OUT)?;
    let mut sender = Uploader {
        stream,
        chunks,
        is_requested: false,
        unsent_bytes: config.size_bytes,
        resumes_ns: None,
        receipt: Receipt::default(),
    };
    let mut ready = Vec::with_capacity(4);
    let mut tick_ns = monotonic_ns() + SECOND_NS;
    loop {
        let until_ns = tick_ns.min(sender.resumes_ns.unwrap_or(u64::MAX));
        let wake = events.wait(&mut ready, Some(until_ns))?;
        received.received_bytes = acknowledged_bytes(stream, config.size_bytes);
        if wake == Wake::Stop {
            reset_when_closed(stream);
            return Ok(Ok(()));
        }
        let is_due = sender
            .resumes_ns
            .is_some_and(|at_ns| at_ns <= monotonic_ns());
        if is_due || !ready.is_empty() {
            match sender.advance(events, config.size_bytes) {
                Ok(Some(confirmed_bytes)) => {
                    received.confirmed(confirmed_bytes, config.size_bytes);
                    return Ok(if received.complete {
                        Ok(())
                    } else {
                        Err(io::Error::other("the server confirms another size"))
                    });
                }
                Ok(None) => {}
                Err(error) if is_not_ready(&error) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
        print_progress(config, received, &mut tick_ns)?;
    }
}

struct Uploader<'a> {
    stream: &'a TcpStream,
    chunks: Option<Chunks>,
    is_requested: bool,
    unsent_bytes: u64,
    /// The end of a pause between chunks.
    resumes_ns: Option<u64>,
    receipt: Receipt,
}

impl Uploader<'_> {
    /// Write as much as goes, then read of the receipt; the bytes that it confirms.
    fn advance(&mut self, events: &Events, size_bytes: u64) -> io::Result<Option<u64>> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        if !self.is_requested {
            announce(self.stream, size_bytes)?;
            self.is_requested = true;
        }
        if self.resumes_ns.take().is_some() {
            events.modify(self.stream, SOCKET, EventFlags::OUT)?;
        }
        while self.unsent_bytes > 0 {
            match write(self.stream, &mut self.chunks, self.unsent_bytes)? {
                Written::Bytes(count) => self.unsent_bytes -= count,
                Written::NotReady => return Ok(None),
                Written::PausedUntil(next_ns) => {
                    events.modify(self.stream, SOCKET, EventFlags::empty())?;
                    self.resumes_ns = Some(next_ns);
                    return Ok(None);
                }
            }
            if self.unsent_bytes == 0 {
                self.stream.set_nodelay(true)?; // a small last segment does not wait for the chunk before it
                events.modify(self.stream, SOCKET, EventFlags::IN)?;
            }
        }
        self.receipt.read(self.stream)
    }
}

struct Receiver {
    stream: TcpStream,
    buffer: Vec<u8>,
    low_water: bool,
}

impl Receiver {
    /// Read once; whether everything came and the stream ended.
    fn read(&mut self, size_bytes: u64, received: &mut Received) -> io::Result<bool> {
        let count = self.stream.read(&mut self.buffer)?;
        if count == 0 && received.received_bytes == size_bytes {
            received.complete = true;
            return Ok(true);
        }
        if count == 0 {
            return Err(io::Error::other("the sender closed too early"));
        }
        let now_ns = realtime_ns();
        received.received_bytes += count as u64;
        received.first_byte_ns.get_or_insert(now_ns);
        received.end_ns = Some(now_ns);
        received.monotonic_end_ns = monotonic_ns();
        if received.received_bytes > size_bytes {
            return Err(io::Error::other("the sender sends more than was agreed"));
        }
        self.adjust_low_water(size_bytes - received.received_bytes)?;
        Ok(false)
    }

    /// Few wake-ups while much is missing, and the true instant of the last byte: the low-water mark is taken
    /// away for the last stretch.
    fn adjust_low_water(&mut self, remaining_bytes: u64) -> io::Result<()> {
        let has_mark = remaining_bytes > 2 * u64::from(LOW_WATER_BYTES);
        if has_mark != self.low_water {
            atoll_netio::tcp_options::set_receive_low_water(
                &self.stream,
                if has_mark { LOW_WATER_BYTES } else { 1 },
            )?;
            self.low_water = has_mark;
        }
        Ok(())
    }
}

impl Received {
    /// The receipt of an upload has come.
    fn confirmed(&mut self, confirmed_bytes: u64, size_bytes: u64) {
        self.received_bytes = confirmed_bytes;
        self.complete = confirmed_bytes == size_bytes;
        self.end_ns = Some(realtime_ns());
        self.monotonic_end_ns = monotonic_ns();
    }

    fn compute_rate(&mut self) {
        if self.end_ns.is_none() {
            return;
        }
        let spent_ns = self.monotonic_end_ns - self.monotonic_start_ns;
        let seconds = spent_ns as f64 / SECOND_NS as f64;
        self.seconds = Some(seconds);
        self.rate_bit_s = (seconds > 0.0).then(|| 8.0 * self.received_bytes as f64 / seconds);
    }
}

fn broken_off_error(error: &io::Error, bytes: u64, verb: &str, size_bytes: u64) -> io::Error {
    io::Error::other(format!(
        "transfer broken off after {bytes} of {size_bytes} bytes {verb}: {error}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{assert_in_contract, configurations};

    #[test]
    fn messages_are_those_of_the_contract() {
        let configs: Vec<TransferConfig> = configurations(
            "transfer",
            &[
                "congestion_control",
                "every_ns",
                "paced",
                "quiet",
                "repeats",
                "write_chunk_bytes",
                "write_rate_bit_s",
            ],
        );
        let listen = configs.iter().find_map(|config| match config {
            TransferConfig::Send(config) => Some(config.listen),
            TransferConfig::Receive(_) | TransferConfig::Upload(_) => None,
        });
        assert_in_contract("transfer", "send", &Message::Ready { listen });
        assert_in_contract(
            "transfer",
            "send",
            &Sent {
                sent_bytes: 10_000_000,
                complete: true,
                seconds: Some(7.5),
            },
        );
        assert_in_contract("transfer", "receive", &Message::Ready { listen: None });
        let t_ns = 1_795_254_142_000_000_000;
        assert_in_contract(
            "transfer",
            "receive",
            &Message::Progress {
                t_ns,
                received_bytes: 1_900_000,
            },
        );

        let start_ns = Some(1_795_254_141_000_000_000);
        let mut nothing = Received {
            start_ns,
            ..Received::default()
        };
        nothing.compute_rate();
        assert_in_contract("transfer", "receive", &nothing);
        let mut everything = Received {
            received_bytes: 10_000_000,
            complete: true,
            first_byte_ns: Some(1_795_254_142_000_000_000),
            end_ns: Some(1_795_254_149_000_000_000),
            monotonic_start_ns: 5 * SECOND_NS,
            monotonic_end_ns: 13 * SECOND_NS,
            ..nothing.clone()
        };
        everything.compute_rate();
        assert_in_contract("transfer", "receive", &everything);
        let error = Some("transfer broken off".into());
        assert_in_contract("transfer", "receive", &Received { error, ..nothing });
    }

    #[test]
    fn the_last_segment_of_an_upload_waits_for_no_acknowledgement() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = connect(listener.local_addr().unwrap(), None).unwrap();
        let _server = listener.accept().unwrap();
        let events = Events::new().unwrap();
        events.add(&stream, SOCKET, EventFlags::OUT).unwrap();
        let mut sender = Uploader {
            stream: &stream,
            chunks: None,
            is_requested: false,
            unsent_bytes: 10,
            resumes_ns: None,
            receipt: Receipt::default(),
        };
        let receipt = sender.advance(&events, 10);
        assert!(is_not_ready(&receipt.unwrap_err()));
        assert!(stream.nodelay().unwrap());
    }

    #[test]
    fn a_clock_that_is_set_meanwhile_does_not_change_what_a_transfer_took() {
        let start_ns = 1_795_254_141_000_000_000;
        let mut received = Received {
            received_bytes: 10_000_000,
            start_ns: Some(start_ns),
            end_ns: Some(start_ns - 20_000_000_000),
            monotonic_start_ns: SECOND_NS,
            monotonic_end_ns: 9 * SECOND_NS,
            ..Received::default()
        };
        received.compute_rate();
        assert_eq!(received.seconds, Some(8.0));
        assert_eq!(received.rate_bit_s, Some(10_000_000.0));
    }
}
