// SPDX-License-Identifier: Apache-2.0
//! A capture from beginning to end.

use crate::config::Config;
use crate::file::CaptureFile;
use atoll_job::clock::real_time_ns;
use atoll_job::{Input, failed, print};
use atoll_netio::capture::CaptureSocket;
use atoll_netio::interface::Interface;
use atoll_netio::privileges::{CapabilitySet, drop_capabilities};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

const COUNTERS_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of polling whether the ring is empty at the end. The kernel closes its last block within 0.4 s.
const DRAIN_POLL: Duration = Duration::from_millis(10);
/// Time after which no more frames are expected from the ring.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Counters since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct FrameCounters {
    /// Frames whose records are in the file.
    pub captured_packets: u64,
    /// Their bytes on the wire, from Ethernet header to the end of the payload.
    pub captured_bytes: u64,
    /// Frames that found the ring full.
    pub dropped_packets: u64,
    /// Of those in the file, frames whose transport checksum their sender left to hardware: on a wire that has none
    /// their receiver discards them as corrupt.
    pub unchecked_packets: u64,
}

/// One line of output.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum Message {
    /// The kernel is capturing.
    Ready {
        /// How much of each frame is kept.
        snap_bytes: u16,
        /// The kernel's ring as it is: whole blocks.
        buffer_bytes: u32,
    },
    /// Every second.
    Counters {
        /// `CLOCK_REALTIME`, ns since 1970.
        t_ns: u64,
        #[serde(flatten)]
        counters: FrameCounters,
    },
    /// The last line.
    Done {
        /// `CLOCK_REALTIME`, ns since 1970.
        t_ns: u64,
        #[serde(flatten)]
        counters: FrameCounters,
    },
}

/// Capture until SIGTERM, SIGINT, SIGHUP or the end of standard input, and say so.
///
/// # Errors
/// A wrong setting when there is no such interface or it is down. What was captured before any other error is
/// in the file.
pub(crate) fn capture(config: &Config, mut input: Input<io::Stdin>) -> io::Result<()> {
    let name = &config.interface;
    let interface = Interface::find_up(name).map_err(|error| {
        atoll_job::bad_configuration(format!("cannot listen on {name}: {error}"))
    })?;
    let signals = atoll_netio::shutdown_signal::requests().map_err(failed("wait for signals"))?;
    let file = CaptureFile::create(&config.file, config.snap_bytes)?;
    drop_capabilities(CapabilitySet::DAC_OVERRIDE).map_err(failed("give up privileges"))?;
    let mut session = Session {
        file,
        socket: CaptureSocket::open(
            &interface,
            config.snap_bytes,
            config.buffer_bytes,
            config.direction,
        )
        .map_err(failed(format!("listen on {name}")))?,
        counts: FrameCounters::default(),
        ring_count: 0,
    };
    let buffer_bytes = session.socket.ring_bytes();
    session.print_message(|_, _| Message::Ready {
        snap_bytes: config.snap_bytes,
        buffer_bytes,
    })?;
    let mut counters_at = Instant::now() + COUNTERS_INTERVAL;
    loop {
        input
            .refuse_requests()
            .map_err(failed("write to standard output"))?;
        let (ready, stop) = wait(&session.socket, &signals, &mut input, counters_at)?;
        session.write_received()?;
        if let Some(error) = ready.then(|| session.socket.take_error()).flatten() {
            session.drain()?;
            return Err(failed(format!("listen on {name}"))(error));
        }
        if stop {
            session.drain()?;
            return session.print_message(|t_ns, counters| Message::Done { t_ns, counters });
        }
        if Instant::now() >= counters_at {
            counters_at += COUNTERS_INTERVAL;
            session.count()?;
            session.print_message(|t_ns, counters| Message::Counters { t_ns, counters })?;
        }
    }
}

/// Sleep until there is something to do: whether the socket has a block or failed, and whether to stop.
fn wait(
    socket: &CaptureSocket,
    signals: &impl AsFd,
    input: &mut Input<io::Stdin>,
    end: Instant,
) -> io::Result<(bool, bool)> {
    let mut polled = [
        PollFd::new(socket, PollFlags::IN),
        PollFd::new(signals, PollFlags::IN),
        PollFd::new(input, PollFlags::IN),
    ];
    poll_for(&mut polled, end.saturating_duration_since(Instant::now()))?;
    let [socket, signal, input_ready] = polled.map(|fd| !fd.revents().is_empty());
    if input_ready {
        input.read().map_err(failed("read standard input"))?;
    }
    Ok((socket, signal || input.ended()))
}

fn poll_for(polled: &mut [PollFd<'_>], timeout: Duration) -> io::Result<()> {
    let timeout =
        Timespec::try_from(timeout).map_err(|_| failed("wait for frames")(Errno::OVERFLOW))?;
    match poll(polled, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(failed("wait for frames")(error)),
    }
}

/// The kernel's ring, the file, and what passed from one to the other.
#[derive(Debug)]
struct Session {
    socket: CaptureSocket,
    file: CaptureFile,
    counts: FrameCounters,
    /// Frames that the kernel has put into the ring, by its own count.
    ring_count: u64,
}

impl Session {
    /// Write what the kernel has handed over, one turn of the ring at most.
    fn write_received(&mut self) -> io::Result<()> {
        for _ in 0..self.socket.blocks() {
            let (mut packets, mut bytes, mut unchecked) = (0, 0, 0);
            let file = &mut self.file;
            let has_frames = self.socket.receive(|received| {
                bytes += u64::from(file.push(received));
                packets += 1;
                unchecked += u64::from(received.checksum_missing);
            });
            if !has_frames {
                break;
            }
            self.file.flush()?;
            self.counts.captured_packets += packets;
            self.counts.captured_bytes += bytes;
            self.counts.unchecked_packets += unchecked;
        }
        Ok(())
    }

    /// Add the kernel's counters.
    fn count(&mut self) -> io::Result<()> {
        let counts = self.socket.take_counts();
        let (packets, lost) = counts.map_err(failed("count frames"))?;
        self.ring_count += packets;
        self.counts.dropped_packets += lost;
        Ok(())
    }

    /// Let no more frames in and write those that the kernel has taken.
    fn drain(&mut self) -> io::Result<()> {
        self.socket.refuse_new().map_err(failed("stop capturing"))?;
        let limit = Instant::now() + DRAIN_TIMEOUT;
        loop {
            self.count()?;
            self.write_received()?;
            let in_ring = self.ring_count.saturating_sub(self.counts.captured_packets);
            if in_ring == 0 || Instant::now() >= limit {
                self.counts.dropped_packets += in_ring;
                return Ok(());
            }
            poll_for(&mut [PollFd::new(&self.socket, PollFlags::IN)], DRAIN_POLL)?;
        }
    }

    fn print_message(&self, message: impl FnOnce(u64, FrameCounters) -> Message) -> io::Result<()> {
        print(&message(real_time_ns(), self.counts)).map_err(failed("write to standard output"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_contract_examples::examples;

    #[test]
    fn messages_are_those_of_the_contract() {
        let examples = examples("capture", "capture");
        let counters = FrameCounters {
            captured_packets: 20_000,
            captured_bytes: 30_280_000,
            dropped_packets: 0,
            unchecked_packets: 3,
        };
        let t_ns = 1_795_254_138_936_818_342;
        let said = [
            Message::Ready {
                snap_bytes: 96,
                buffer_bytes: 16_777_216,
            },
            Message::Counters { t_ns, counters },
            Message::Done { t_ns, counters },
        ];
        let said: Vec<_> = said
            .iter()
            .map(|message| serde_json::to_value(message).unwrap())
            .collect();
        assert_eq!(said, examples);
    }
}
