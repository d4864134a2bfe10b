// SPDX-License-Identifier: Apache-2.0
//! What the proxy reports, and the requests that it answers.

use super::{Proxy, most_pending};
use crate::config::{Change, Side};
use crate::connection::{Connection, Stage};
use crate::messages::{Answer, Content, CurrentValues, Figures, Message, Request, median_and_max};
use crate::sockets::{set_leg_silence, set_silence};
use atoll_job::Output;
use atoll_job::clock::real_time_ns;
use atoll_measures::Peak;
use std::cmp::Reverse;

/// Connections whose figures are read for each line of counters.
const SAMPLED_CONNECTIONS: usize = 32;

impl Proxy {
    /// Read the figures of the next connections.
    pub(super) fn sample(&mut self) {
        let after = self.connections.iter().map(|(slot, _)| slot);
        let (later, earlier): (Vec<usize>, Vec<usize>) =
            after.partition(|&slot| slot >= self.cursor);
        for slot in later.into_iter().chain(earlier).take(SAMPLED_CONNECTIONS) {
            self.cursor = slot + 1;
            let silence_ns = self.config.silence_ns;
            let connection = &mut self.connections[slot];
            if connection.is_established() && connection.take_sample(silence_ns) {
                self.enqueue(slot);
            }
        }
    }

    /// The figures now, with maxima as `take_peak` takes them.
    pub(super) fn figures(&mut self, take_peak: fn(&mut Peak) -> u64) -> Figures {
        let established = self.connections.iter().map(|(_, c)| c);
        let mut rtts = [Vec::new(), Vec::new()];
        let mut current = CurrentValues {
            pending_connections: self.pending.len() as u64,
            pending_of_a_server: self.pending.max_per_server() as u64,
            buffered_bytes: self.plumbing.buffered_bytes,
            multiplexes: self.multiplexes(),
            multiplex_rtt_ns: self.multiplex_rtt_ns(),
            pipes: 1,
            memory_bytes: resident_bytes(),
            ..CurrentValues::default()
        };
        for connection in established.filter(|connection| connection.is_established()) {
            current.open_connections += 1;
            current.held_bytes += connection.sample.held_bytes;
            for (rtts, side) in rtts.iter_mut().zip(Side::BOTH) {
                rtts.extend(connection.sample.rtt_ns.of(side));
            }
        }
        let [world, island] = rtts.map(|mut rtts| median_and_max(&mut rtts).unzip());
        (current.world_rtt_median_ns, current.world_rtt_max_ns) = world;
        (current.island_rtt_median_ns, current.island_rtt_max_ns) = island;
        self.held.record(current.held_bytes);
        self.buffered.record(current.buffered_bytes);
        current.held_max_bytes = take_peak(&mut self.held);
        current.buffered_max_bytes = take_peak(&mut self.buffered);
        Figures {
            sums: self.sums,
            current,
        }
    }

    fn multiplexes(&self) -> u64 {
        let active_legs = self
            .legs
            .iter()
            .filter(|leg| leg.is_up() && !leg.is_retired);
        active_legs.count() as u64
    }

    /// Of the multiplexed connection with the longest one.
    fn multiplex_rtt_ns(&self) -> Option<u64> {
        let active_legs = self.legs.iter().filter(|leg| leg.is_up());
        let rtts = active_legs.filter_map(|leg| Some(leg.end.as_ref()?.progress()?.rtt_us));
        rtts.max().map(|rtt_us| u64::from(rtt_us) * 1000)
    }

    pub(super) fn figures_since_mark(&mut self) -> Figures {
        let figures = self.figures(Peak::take_measurement);
        Figures {
            sums: self.marked.measure(self.sums),
            ..figures
        }
    }

    pub(super) fn answer_request(&mut self, request: Request, output: &Output, now_ns: u64) {
        let (op, id, content) = match request {
            Request::Mark { id } => {
                let figures = self.figures_since_mark();
                let t_ns = real_time_ns();
                output.line(&Message::Mark { id, t_ns, figures });
                return;
            }
            Request::Set(change) => ("set".to_owned(), change.id, self.change(&change)),
            Request::Reset { id, pair } => ("reset".to_owned(), id, self.reset(pair)),
            Request::Connections { id, limit } => {
                ("connections".to_owned(), id, self.list(limit, now_ns))
            }
        };
        output.line(&Answer {
            op,
            id,
            t_ns: real_time_ns(),
            ok: !matches!(content, Content::Error { .. }),
            content,
        });
    }

    /// `mode` and `handshake_ns` are for new connections, the others for open ones, too.
    pub(super) fn change(&mut self, change: &Change) -> Content {
        self.config = match self.config.changed(change) {
            Ok(config) => config,
            Err(error) => return Content::Error { error },
        };
        self.config.pending_max = most_pending(&self.config, self.sockets_max);
        self.admits = change.admit.unwrap_or(self.admits);
        self.learned.for_ns = self.config.learned_for_ns;
        for side in &self.sides {
            if let Err(error) = side.change(&self.config) {
                let error = format!("{}: {error}", side.interface);
                return Content::Error { error };
            }
        }
        if let Some(silence_ns) = change.silence_ns {
            self.set_silence(silence_ns);
        }
        Content::Nothing {}
    }

    /// Sockets whose connections are gone take nothing.
    fn set_silence(&self, silence_ns: u64) {
        let connections = self.connections.iter();
        let ends = connections.flat_map(|(_, c)| c.client.iter().chain([&c.server]));
        for socket in ends.filter_map(|end| end.descriptor().ok()) {
            let _ = set_silence(&socket, silence_ns);
        }
        let legs = self.legs.iter().filter_map(|leg| leg.end.as_ref());
        for socket in legs.filter_map(|end| end.descriptor().ok()) {
            let _ = set_leg_silence(&socket, silence_ns);
        }
    }

    pub(super) fn reset(&mut self, pair: Option<usize>) -> Content {
        let pairs = self.config.pairs.len();
        if let Some(pair) = pair.filter(|&pair| pair >= pairs) {
            let error =
                format!("there is no pair {pair}: the configuration has {pairs}, numbered from 0");
            return Content::Error { error };
        }
        let is_selected = |connection: &Connection| {
            pair.is_none_or(|pair| connection.pair == pair)
                && !matches!(connection.stage, Stage::Over)
        };
        let selected = self
            .connections
            .iter()
            .filter(|(_, connection)| is_selected(connection));
        let selected: Vec<usize> = selected.map(|(slot, _)| slot).collect();
        for &slot in &selected {
            if self.connections[slot].is_pending() {
                self.give_up(slot);
            } else {
                self.sums.own_resets += 1;
                self.resetting.remove(&slot);
                self.end(slot);
            }
        }
        Content::Ended {
            connections: selected.len(),
        }
    }

    fn list(&self, limit: usize, now_ns: u64) -> Content {
        let mut connections: Vec<&Connection> = self.connections.iter().map(|(_, c)| c).collect();
        connections.sort_by_key(|c| (Reverse(c.sample.held_bytes), c.id));
        let first = connections.into_iter().take(limit);
        Content::Connections {
            connections: first.map(|connection| connection.listed(now_ns)).collect(),
        }
    }
}

/// Resident memory of this process (proc(5), statm); 0 if it cannot be read.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<u64> = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
