// SPDX-License-Identifier: Apache-2.0
//! One channel: its flow number and the flow in progress.

use super::flow_log::{Entry, Outcome};
use super::{READ_BYTES, Shared};
use crate::clock::realtime_ns;
use crate::failure::Failure;
use crate::socket::{connect, errno_name, is_not_ready};
use rustix::event::epoll::EventFlags;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// First wait after a failure, doubled for each further one in a row.
const BACK_OFF_MIN_NS: u64 = 100_000_000;

/// Longest wait after a failure.
const BACK_OFF_MAX_NS: u64 = 5_000_000_000;

/// While more than this is still to come, the kernel collects so much before it wakes us: one wake-up for eleven
/// full-size packets instead of one for each. The first byte is waited for without it, so that its time stamp is
/// true; the end of the stream wakes us whatever is missing, so nothing can hang on it.
const LOW_WATER_BYTES: u16 = 16_384;

/// What a channel wants after a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Its socket is watched: nothing until that is ready.
    Ready,
    /// To begin its next flow after so many nanoseconds.
    After(u64),
}

/// A channel and the flow it is fetching.
pub struct Channel {
    number: u64,
    next_flow: u64,
    failures_in_a_row: u32,
    fetching: Option<Fetching>,
}

struct Fetching {
    stream: TcpStream,
    entry: Entry,
    low_water: bool,
}

/// What reading or writing a flow's socket came to.
enum Step {
    Going,
    Ended(Outcome),
}

impl Channel {
    /// A channel before its first flow.
    pub fn new(number: u64) -> Self {
        Self {
            number,
            next_flow: 0,
            failures_in_a_row: 0,
            fetching: None,
        }
    }

    /// Whether a flow is in progress.
    pub fn is_active(&self) -> bool {
        self.fetching.is_some()
    }

    /// Begin the next flow; its socket is watched with token `index`.
    ///
    /// # Errors
    /// If the flow log cannot be written. A flow that fails at once is no error, but logged.
    pub fn begin(&mut self, index: usize, shared: &mut Shared<'_>) -> Result<Next, Failure> {
        let config = shared.config;
        let flow = flow_sizes::draw(
            &shared.sizes,
            config.seed,
            self.number,
            self.next_flow,
            config.servers.len(),
        );
        let entry = Entry {
            channel: self.number,
            flow: self.next_flow,
            server: config.servers[flow.server],
            size_bytes: flow.size_bytes,
            received_bytes: 0,
            start_ns: realtime_ns(),
            connected_ns: None,
            first_byte_ns: None,
            end_ns: 0,
        };
        self.next_flow += 1;
        let opened = connect(entry.server, Some(&config.congestion_control)).and_then(|stream| {
            shared.events.add(&stream, index as u64, EventFlags::OUT)?;
            Ok(stream)
        });
        match opened {
            Ok(stream) => {
                self.fetching = Some(Fetching {
                    stream,
                    entry,
                    low_water: false,
                });
                Ok(Next::Ready)
            }
            Err(error) => self.ended(entry, &Outcome::Failed(errno_name(&error)), shared),
        }
    }

    /// Do what the socket is ready for: one read of bounded size, and begin the next flow if this one is over.
    ///
    /// # Errors
    /// As of [`Channel::begin`].
    pub fn service(
        &mut self,
        index: usize,
        flags: EventFlags,
        shared: &mut Shared<'_>,
    ) -> Result<Next, Failure> {
        let Some(fetching) = &mut self.fetching else {
            return Ok(Next::Ready);
        };
        let step = fetching.advance(index, flags, shared);
        let outcome = match step {
            Ok(Step::Going) => return Ok(Next::Ready),
            Ok(Step::Ended(outcome)) => outcome,
            Err(error) if is_not_ready(&error) => return Ok(Next::Ready),
            Err(error) => Outcome::Failed(errno_name(&error)),
        };
        let entry = fetching.entry;
        self.fetching = None;
        match self.ended(entry, &outcome, shared)? {
            Next::Ready => self.begin(index, shared),
            wait @ Next::After(_) => Ok(wait),
        }
    }

    /// The run is over: log the flow in progress as cut.
    ///
    /// # Errors
    /// If the flow log cannot be written.
    pub fn cut(&mut self, shared: &mut Shared<'_>) -> Result<(), Failure> {
        let Some(Fetching { entry, .. }) = &self.fetching else {
            return Ok(());
        };
        shared.log.append(
            &Entry {
                end_ns: realtime_ns(),
                ..*entry
            },
            &Outcome::Cut,
        )
    }

    fn ended(
        &mut self,
        entry: Entry,
        outcome: &Outcome,
        shared: &mut Shared<'_>,
    ) -> Result<Next, Failure> {
        shared.log.append(
            &Entry {
                end_ns: realtime_ns(),
                ..entry
            },
            outcome,
        )?;
        if *outcome == Outcome::Completed {
            shared.flows_completed += 1;
            self.failures_in_a_row = 0;
            return Ok(Next::Ready);
        }
        shared.flows_failed += 1;
        let wait_ns = back_off_ns(self.failures_in_a_row);
        self.failures_in_a_row += 1;
        Ok(Next::After(wait_ns))
    }
}

impl Fetching {
    fn advance(
        &mut self,
        index: usize,
        flags: EventFlags,
        shared: &mut Shared<'_>,
    ) -> io::Result<Step> {
        if self.entry.connected_ns.is_none() {
            // Eight bytes always fit into the buffer of a new connection; one that has failed says here why.
            self.stream
                .write_all(&self.entry.size_bytes.to_be_bytes())?;
            self.entry.connected_ns = Some(realtime_ns());
            shared.events.modify(
                &self.stream,
                index as u64,
                EventFlags::IN | EventFlags::RDHUP,
            )?;
            return Ok(Step::Going);
        }
        let count = self.stream.read(&mut shared.buffer)?;
        self.entry.received_bytes += count as u64;
        shared.received_bytes += count as u64;
        if count > 0 && self.entry.first_byte_ns.is_none() {
            self.entry.first_byte_ns = Some(realtime_ns());
        }
        // The end had come before this read (RDHUP), which did not fill the buffer: it took all there was.
        let ended = count == 0 || (flags.contains(EventFlags::RDHUP) && count < READ_BYTES);
        let left = self.entry.size_bytes.checked_sub(self.entry.received_bytes);
        match left {
            None => Ok(Step::Ended(Outcome::Failed("EPROTO".into()))),
            Some(0) if ended => Ok(Step::Ended(Outcome::Completed)),
            Some(_) if ended => Ok(Step::Ended(Outcome::Failed("ENODATA".into()))),
            Some(left) => {
                if !self.low_water && left > u64::from(LOW_WATER_BYTES) {
                    netio::stream::set_receive_low_water(&self.stream, LOW_WATER_BYTES)?;
                    self.low_water = true;
                }
                Ok(Step::Going)
            }
        }
    }
}

const fn back_off_ns(failures_in_a_row: u32) -> u64 {
    let doublings = if failures_in_a_row < 6 {
        failures_in_a_row
    } else {
        6
    };
    let wait_ns = BACK_OFF_MIN_NS << doublings;
    if wait_ns < BACK_OFF_MAX_NS {
        wait_ns
    } else {
        BACK_OFF_MAX_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_doubles_up_to_its_bound() {
        let waits: Vec<u64> = (0..8)
            .map(|failures| back_off_ns(failures) / 1_000_000)
            .collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(back_off_ns(u32::MAX), BACK_OFF_MAX_NS);
    }
}
