// SPDX-License-Identifier: Apache-2.0
//! One flow in progress: connect, ask, receive until the server closes.

use super::READ_BYTES;
use super::fair_scheduler::Token;
use super::flow_log::{Entry, Outcome};
use crate::events::Events;
use crate::job::realtime_ns;
use crate::socket::{connect, reset_when_closed};
use rustix::event::epoll::EventFlags;
use rustix::io::ioctl_fionread;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// While more than this is still to come, the kernel collects so much before it wakes us: one wake-up for eleven
/// full-size packets instead of one for each. The first byte is waited for without it, so that its time stamp is
/// true; the end of the stream wakes us whatever is missing, so nothing can hang on it.
const LOW_WATER_BYTES: u16 = 16_384;

/// A flow whose connection was begun.
pub struct Fetch {
    stream: TcpStream,
    /// Its entry in the log.
    pub entry: Entry,
    /// The index of its channel.
    pub channel: usize,
    /// When it was begun, monotonic.
    pub begun_ns: u64,
    /// How many bytes had come at the last look, and the first look that saw so many.
    last_progress: (u64, u64),
    low_water: bool,
}

/// The result of serving a socket.
pub enum Progress {
    /// More is to come.
    Continuing,
    /// That was all.
    Ended(Outcome),
}

impl Fetch {
    /// Begin to connect, by congestion control `control` if one is given; the socket is watched with `token`.
    ///
    /// # Errors
    /// As of [`connect`].
    pub fn begin(
        entry: Entry,
        begun_ns: u64,
        control: Option<&str>,
        events: &Events,
        token: Token,
    ) -> io::Result<Self> {
        let stream = connect(entry.server, control)?;
        events.add(&stream, token.number(), EventFlags::OUT)?;
        Ok(Self {
            stream,
            entry,
            channel: token.channel(),
            begun_ns,
            last_progress: (0, begun_ns),
            low_water: false,
        })
    }

    /// How long it has been connected without a byte coming, by looks such as this one.
    pub fn silent_ns(&mut self, now_ns: u64) -> u64 {
        // Fewer bytes than the low-water mark wait in the socket.
        let waiting = ioctl_fionread(&self.stream).unwrap_or(0);
        let received = self.entry.received_bytes + waiting;
        if self.entry.connected_ns.is_none() || received != self.last_progress.0 {
            self.last_progress = (received, now_ns);
        }
        now_ns.saturating_sub(self.last_progress.1)
    }

    /// Nothing more is expected of it: see [`reset_when_closed`].
    pub fn reset_when_closed(&self) {
        reset_when_closed(&self.stream);
    }

    /// Go on as far as the socket is ready: request, or read once into `buffer`.
    ///
    /// # Errors
    /// The flow's: it has failed, unless the error says that there was nothing to do.
    pub fn advance(
        &mut self,
        flags: EventFlags,
        events: &Events,
        token: u64,
        buffer: &mut [u8],
    ) -> io::Result<Progress> {
        if self.entry.connected_ns.is_none() {
            // Eight bytes always fit into the buffer of a new connection; one that has failed says here why.
            self.stream
                .write_all(&self.entry.size_bytes.to_be_bytes())?;
            self.entry.connected_ns = Some(realtime_ns());
            events.modify(&self.stream, token, EventFlags::IN | EventFlags::RDHUP)?;
            return Ok(Progress::Continuing);
        }
        let count = self.stream.read(buffer)?;
        self.entry.received_bytes += count as u64;
        if count > 0 && self.entry.first_byte_ns.is_none() {
            self.entry.first_byte_ns = Some(realtime_ns());
        }
        // The end had come before this read (RDHUP), which did not fill the buffer: it took all there was.
        let is_ended = count == 0 || (flags.contains(EventFlags::RDHUP) && count < READ_BYTES);
        let remaining = self.entry.size_bytes.checked_sub(self.entry.received_bytes);
        match remaining {
            None => Ok(Progress::Ended(Outcome::Failed("EPROTO".into()))),
            Some(0) if is_ended => Ok(Progress::Ended(Outcome::Completed)),
            // Behind a reset, the next read has the error.
            Some(_) if count == 0 || (is_ended && !flags.contains(EventFlags::ERR)) => {
                Ok(Progress::Ended(Outcome::Failed("ENODATA".into())))
            }
            Some(remaining) => {
                if !self.low_water && remaining > u64::from(LOW_WATER_BYTES) {
                    atoll_netio::tcp_options::set_receive_low_water(&self.stream, LOW_WATER_BYTES)?;
                    self.low_water = true;
                }
                Ok(Progress::Continuing)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::set_socket_linger;
    use std::net::{Ipv4Addr, TcpListener};
    use std::time::Duration;

    #[test]
    fn a_reset_behind_data_is_no_end_of_the_stream() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let entry = Entry {
            channel: 0,
            flow: 0,
            server: listener.local_addr().unwrap(),
            size_bytes: 100,
            received_bytes: 0,
            start_ns: 0,
            connected_ns: None,
            first_byte_ns: None,
            end_ns: 0,
        };
        let events = Events::new().unwrap();
        let token = Token::new(0, 0);
        let mut fetch = Fetch::begin(entry, 0, None, &events, token).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut advance = |flags| {
            let mut buffer = vec![0; READ_BYTES];
            fetch.advance(flags, &events, token.number(), &mut buffer)
        };
        assert!(matches!(advance(EventFlags::OUT), Ok(Progress::Continuing)));
        server.write_all(&[0; 10]).unwrap();
        set_socket_linger(&server, Some(Duration::ZERO)).unwrap();
        drop(server);
        let reset = EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        assert!(matches!(advance(reset), Ok(Progress::Continuing)));
        let error = advance(reset).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}
