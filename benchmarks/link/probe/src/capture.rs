// SPDX-License-Identifier: Apache-2.0
//! Notes when the frames of all flows arrive at an interface.

use crate::config;
use crate::error::ProbeError;
use crate::frame;
use crate::port;
use crate::record::record;
use atoll_netio::capture::{CaptureDirection, CaptureSocket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Enough for the name of a frame.
const SNAP_BYTES: u16 = 64;
/// Some 300 000 frames: at the highest rates measured here nobody need read for a second or more.
const RING_BYTES: u32 = 48 << 20;
/// The interval at which the end is checked; also the time for which the kernel may hold a block that is not full.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 110_000_000,
};

/// The frames that a capture saw.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Captured {
    records: u64,
    /// The ring had no room for them.
    lost: u64,
}

/// One that is under way: the kernel takes frames in.
#[derive(Debug)]
pub(crate) struct Capture {
    socket: CaptureSocket,
    path: PathBuf,
    file: BufWriter<File>,
}

/// Begin.
pub(crate) fn open(config: &config::Capture) -> Result<Capture, ProbeError> {
    let socket = port::open(&config.port, |interface| {
        CaptureSocket::open(interface, SNAP_BYTES, RING_BYTES, CaptureDirection::In)
    })?;
    let path = config.file.clone();
    let file = File::create(&path).map_err(|source| ProbeError::File {
        path: path.clone(),
        source,
    })?;
    Ok(Capture {
        socket,
        path,
        file: BufWriter::with_capacity(1 << 20, file),
    })
}

impl Capture {
    /// Write records until `sent_all` is set and all earlier arrivals are written.
    pub(crate) fn run(mut self, sent_all: &AtomicBool) -> Result<Captured, ProbeError> {
        self.write_all(sent_all).map_err(|source| ProbeError::File {
            path: self.path,
            source,
        })
    }

    fn write_all(&mut self, sent_all: &AtomicBool) -> io::Result<Captured> {
        let mut captured = Captured::default();
        loop {
            let last = sent_all.load(Ordering::Relaxed);
            if last {
                self.socket.refuse_new()?;
            }
            poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&LOOK))?;
            let mut result = Ok(());
            while self.socket.receive(|received| {
                let Some(name) = frame::name(received.frame) else {
                    return;
                };
                captured.records += 1;
                let vlan = received.vlan.map_or(0, atoll_headers::VlanTag::id);
                let record = record(received.real_time_ns, name, received.wire_bytes, vlan);
                if result.is_ok() {
                    result = self.file.write_all(&record);
                }
            }) {}
            result?;
            if last {
                break;
            }
        }
        (_, captured.lost) = self.socket.take_counts()?;
        self.file.flush()?;
        Ok(captured)
    }
}
