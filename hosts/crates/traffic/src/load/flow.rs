// SPDX-License-Identifier: Apache-2.0
//! One flow in progress: connect, ask, receive until the server closes; or announce, send, and wait for the receipt.

use super::READ_BYTES;
use super::config::{Direction, LoadConfig};
use super::fair_scheduler::Token;
use super::flow_log::{Entry, Outcome};
use crate::events::Events;
use crate::job::realtime_ns;
use crate::socket::{connect, reset_when_closed};
use crate::upload::{Receipt, Request, acknowledged_bytes, announce};
use crate::writes::{Written, write};
use rustix::event::epoll::EventFlags;
use rustix::io::ioctl_fionread;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// While more than this is still to come, the kernel collects so much before it wakes us: one wake-up for eleven
/// full-size packets instead of one for each. The first byte is waited for without it, so that its time stamp is
/// true; the end of the stream wakes us whatever is missing, so nothing can hang on it.
const LOW_WATER_BYTES: u16 = 16_384;

/// A flow whose connection was begun.
pub struct Flow {
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
    upload: Option<Upload>,
}

/// An upload in progress.
struct Upload {
    /// To be handed to the kernel.
    unsent_bytes: u64,
    receipt: Receipt,
}

/// The result of serving a socket.
pub enum Progress {
    /// More is to come.
    Continuing,
    /// That was all.
    Ended(Outcome),
}

impl Flow {
    /// Begin to connect, by congestion control `control` if one is given; the socket is watched with `token`.
    ///
    /// # Errors
    /// As of [`connect`], and of [`crate::writes::Writes::begin`].
    pub fn begin(
        entry: Entry,
        begun_ns: u64,
        config: &LoadConfig,
        control: Option<&str>,
        events: &Events,
        token: Token,
    ) -> io::Result<Self> {
        let stream = connect(entry.server, control)?;
        let upload = match config.direction {
            Direction::Download => None,
            Direction::Upload => {
                config.writes.begin(&stream)?;
                Some(Upload {
                    unsent_bytes: entry.size_bytes,
                    receipt: Receipt::default(),
                })
            }
        };
        events.add(&stream, token.number(), EventFlags::OUT)?;
        Ok(Self {
            stream,
            entry,
            channel: token.channel(),
            begun_ns,
            last_progress: (0, begun_ns),
            low_water: false,
            upload,
        })
    }

    /// Payload that was received, or of an upload acknowledged: by a connection-splitting PEP, if there is one.
    pub fn moved_bytes(&self) -> u64 {
        match self.upload {
            None => self.entry.received_bytes,
            Some(_) => acknowledged_bytes(&self.stream, self.entry.size_bytes),
        }
    }

    /// Payload of an upload that was handed to the kernel.
    pub fn sent_bytes(&self) -> u64 {
        self.upload
            .as_ref()
            .map_or(0, |upload| self.entry.size_bytes - upload.unsent_bytes)
    }

    /// How long it has been connected without a byte coming, or being acknowledged, by looks such as this one.
    pub fn silent_ns(&mut self, now_ns: u64) -> u64 {
        let received = match &self.upload {
            Some(upload) => self.moved_bytes() + upload.receipt.length as u64,
            // Fewer bytes than the low-water mark wait in the socket.
            None => self.entry.received_bytes + ioctl_fionread(&self.stream).unwrap_or(0),
        };
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
            let size_bytes = self.entry.size_bytes;
            if self.upload.is_some() {
                announce(&self.stream, size_bytes)?;
            } else {
                // Eight bytes always fit into the buffer of a new connection; one that has failed says here why.
                self.stream
                    .write_all(&Request::Download(size_bytes).to_bytes())?;
                events.modify(&self.stream, token, EventFlags::IN | EventFlags::RDHUP)?;
            }
            self.entry.connected_ns = Some(realtime_ns());
            return Ok(Progress::Continuing);
        }
        if let Some(upload) = &mut self.upload {
            return upload.advance(&self.stream, &mut self.entry, events, token);
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

impl Upload {
    /// Write once, or read once of the receipt.
    fn advance(
        &mut self,
        stream: &TcpStream,
        entry: &mut Entry,
        events: &Events,
        token: u64,
    ) -> io::Result<Progress> {
        if self.unsent_bytes > 0 {
            if let Written::Bytes(count) = write(stream, &mut None, self.unsent_bytes)? {
                self.unsent_bytes -= count;
            }
            if self.unsent_bytes == 0 {
                events.modify(stream, token, EventFlags::IN | EventFlags::RDHUP)?;
            }
            return Ok(Progress::Continuing);
        }
        let Some(confirmed_bytes) = self.receipt.read(stream)? else {
            return Ok(Progress::Continuing);
        };
        entry.received_bytes = confirmed_bytes;
        Ok(Progress::Ended(if confirmed_bytes == entry.size_bytes {
            Outcome::Completed
        } else {
            Outcome::Failed("EPROTO".into())
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{LOAD_OPTIONAL, configurations};
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
        let config = configurations("load", LOAD_OPTIONAL).remove(0);
        let mut flow = Flow::begin(entry, 0, &config, None, &events, token).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut advance = |flags| {
            let mut buffer = vec![0; READ_BYTES];
            flow.advance(flags, &events, token.number(), &mut buffer)
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
