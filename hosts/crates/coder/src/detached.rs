// SPDX-License-Identifier: Apache-2.0
//! A coder without an engine, for simulations: frames and instants are arguments.

use crate::config::Config;
use crate::program::Coder;
use atoll_frame_engine::{Arrival, FrameOutput, FrameProgram, Now, Received};
use std::io;

/// The program of `atoll-host coder`, without sockets and a clock.
#[derive(Debug)]
pub struct DetachedCoder {
    coder: Coder,
    out: FrameOutput<()>,
}

impl DetachedCoder {
    /// The coder of a configuration, as docs/contracts.md has it. `session_start`: the start of its session, from which generations are counted.
    ///
    /// # Errors
    /// The first thing that is wrong with the configuration.
    pub fn new(configuration: &str, session_start: u32) -> io::Result<Self> {
        let config = Config::parse(configuration)?;
        Ok(Self {
            coder: Coder::new(&config, session_start).map_err(io::Error::other)?,
            out: FrameOutput::default(),
        })
    }

    /// A frame arrives at a port: the ports are numbered in pairs, the world's first. The frames that leave, with their
    /// ports.
    pub fn arrive(&mut self, port: usize, now_ns: u64, frame: &[u8]) -> Vec<(usize, Vec<u8>)> {
        let received = Received::whole(frame, now_ns);
        let arrival = Arrival {
            port,
            now_ns,
            stamped: true,
            received: &received,
        };
        self.coder.on_frame(&arrival, &mut self.out);
        self.take_frames()
    }

    /// When [`DetachedCoder::wake`] is to be called next.
    #[must_use]
    pub fn next_wake(&self) -> Option<u64> {
        self.coder.next_wake()
    }

    /// Time passes: the frames that leave, with their ports.
    pub fn wake(&mut self, now_ns: u64) -> Vec<(usize, Vec<u8>)> {
        self.coder.on_wake(now_ns, &mut self.out);
        self.take_frames()
    }

    /// The line of counters that it would print.
    ///
    /// # Errors
    /// None are expected.
    pub fn counters(&mut self, now_ns: u64) -> serde_json::Result<serde_json::Value> {
        let now = Now {
            monotonic_ns: now_ns,
            real_time_ns: now_ns,
            cpu_ns: 0,
        };
        serde_json::to_value(self.coder.counters(now))
    }

    fn take_frames(&mut self) -> Vec<(usize, Vec<u8>)> {
        let frames = self.out.take();
        frames
            .into_iter()
            .map(|frame| (frame.port, frame.frame))
            .collect()
    }
}
