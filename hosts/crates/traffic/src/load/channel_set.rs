// SPDX-License-Identifier: Apache-2.0
//! The channels of a process: flows in progress, flows that are due, and counters of ended flows.

use super::channel::Channel;
use super::config::{Change, Direction, FlowStarts, LoadConfig, LoadSettings};
use super::fair_scheduler::Token;
use super::fairness::ChannelShares;
use super::flow::{Flow, Progress};
use super::flow_log::{Entry, FlowLog, Outcome};
use super::{Counters, READ_BYTES};
use crate::events::Events;
use crate::job::{monotonic_ns, realtime_ns};
use crate::socket::{errno_name, is_default_congestion_control, is_not_ready};
use nix::errno::Errno;
use rustix::event::epoll::EventFlags;
use slab::Slab;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::io;

/// Flows begun in one turn at most, so that a turn's length is bounded: beginning one takes some 30 us.
const BEGUN_PER_TURN: usize = 64;

/// The channels, named by their index here.
pub struct ChannelSet<'a> {
    config: &'a LoadConfig,
    settings: LoadSettings,
    /// The congestion control to ask for; None: sockets have it anyway.
    control: Option<&'a str>,
    channels: Vec<Channel>,
    /// Which of them begin flows now, and which have nothing in progress and nothing due.
    states: Vec<State>,
    flows: Slab<Flow>,
    /// (monotonic time, channel) of flows that are to begin.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    log: FlowLog,
    shares: ChannelShares,
    /// How much later than due the latest flow was begun.
    pub latest_begin_ns: u64,
    buffer: Vec<u8>,
    completed: u64,
    failed: u64,
    /// How many flows were given up for the silence of their servers.
    pub silent: u64,
    received_bytes: u64,
    sent_bytes: u64,
}

/// The state of a channel that a change of the load depends on.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Whether it begins flows.
    active: bool,
    /// Closed loop: whether it has a flow in progress or due. Open loop: whether it has one due.
    busy: bool,
}

impl<'a> ChannelSet<'a> {
    /// Channels before their first flows, which `log` records.
    ///
    /// # Errors
    /// If no socket can be made.
    pub fn new(config: &'a LoadConfig, settings: LoadSettings, log: FlowLog) -> io::Result<Self> {
        let control = config.congestion_control.as_str();
        let control = (!is_default_congestion_control(control)?).then_some(control);
        let channels: Vec<Channel> = config
            .all_channels()
            .into_iter()
            .map(Channel::new)
            .collect();
        Ok(Self {
            config,
            settings,
            control,
            states: vec![State::default(); channels.len()],
            shares: ChannelShares::new(channels.len()),
            channels,
            flows: Slab::new(),
            due: BinaryHeap::new(),
            log,
            latest_begin_ns: 0,
            buffer: vec![0; READ_BYTES],
            completed: 0,
            failed: 0,
            silent: 0,
            received_bytes: 0,
            sent_bytes: 0,
        })
    }

    /// The channels of the beginning start, at `start_ns` of the monotonic clock.
    pub fn start(&mut self, start_ns: u64) {
        let config = self.config;
        self.activate(&config.channels, start_ns);
    }

    /// The load changes, at `now_ns` of the monotonic clock. Flows in progress go on, and so do pauses of a closed loop;
    /// the waits of an open loop are of the new rate from then on. A channel that is no longer there begins no other
    /// flow; one that comes (again) goes on with its next one.
    pub fn change(&mut self, change: &Change, now_ns: u64) {
        if let Some(sizes) = &change.flow_sizes {
            self.settings.sizes = sizes.clone();
        }
        self.settings.counts = change.counts.unwrap_or(self.settings.counts);
        if let (Some(FlowStarts::Poisson { mean_ns }), Some(FlowStarts::Poisson { mean_ns: new })) =
            (self.settings.pace, change.pace)
        {
            rescale(&mut self.due, now_ns, mean_ns, new);
        }
        self.settings.pace = change.pace.or(self.settings.pace);
        if let Some(channels) = &change.channels {
            self.activate(channels, now_ns);
        }
    }

    /// The channels of these numbers begin flows from `now_ns` on, and no others.
    fn activate(&mut self, numbers: &[u64], now_ns: u64) {
        let numbers: HashSet<u64> = numbers.iter().copied().collect();
        let is_open_loop = self.config.is_open_loop();
        for (index, (channel, state)) in self.channels.iter().zip(&mut self.states).enumerate() {
            state.active = numbers.contains(&channel.number());
            if state.active && !state.busy {
                state.busy = true;
                let wait_ns = if is_open_loop {
                    channel.wait_ns(self.config.seed, &self.settings)
                } else {
                    0
                };
                self.due
                    .push(Reverse((now_ns.saturating_add(wait_ns), index)));
            }
        }
    }

    /// Flows in progress.
    pub fn active(&self) -> usize {
        self.flows.len()
    }

    /// When the next flow is due, monotonic; None: all channels are busy.
    pub fn next_due_ns(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((due_ns, _))| *due_ns)
    }

    /// Begin the flows that are due at `now_ns` of the monotonic clock, the earliest first; those beyond
    /// [`BEGUN_PER_TURN`] stay due.
    ///
    /// # Errors
    /// If the flow log cannot be written. A flow that fails at once is no error, but logged.
    pub fn begin_due(&mut self, events: &Events, now_ns: u64) -> io::Result<()> {
        for _ in 0..BEGUN_PER_TURN {
            let Some(&Reverse((due_ns, index))) = self.due.peek() else {
                break;
            };
            if due_ns > now_ns {
                break;
            }
            self.due.pop();
            if !self.states[index].active {
                self.states[index].busy = false;
                continue;
            }
            self.latest_begin_ns = self.latest_begin_ns.max(now_ns - due_ns);
            self.begin(events, index)?;
            if self.config.is_open_loop() {
                let wait_ns = self.channels[index].wait_ns(self.config.seed, &self.settings);
                // Since the flow before was due: a late one delays none of those behind it.
                self.due
                    .push(Reverse((due_ns.saturating_add(wait_ns), index)));
            }
        }
        Ok(())
    }

    /// Serve a flow's socket; if the flow has ended, its channel goes on with the next one.
    ///
    /// # Errors
    /// As of [`ChannelSet::begin_due`].
    pub fn service(&mut self, events: &Events, token: Token, flags: EventFlags) -> io::Result<()> {
        let Some(flow) = self.flows.get_mut(token.slot()) else {
            return Ok(());
        };
        let previous_bytes = (flow.entry.received_bytes, flow.sent_bytes());
        let progress = flow.advance(flags, events, token.number(), &mut self.buffer);
        if self.config.direction == Direction::Download {
            self.received_bytes += flow.entry.received_bytes - previous_bytes.0;
        }
        self.sent_bytes += flow.sent_bytes() - previous_bytes.1;
        let outcome = match progress {
            Ok(Progress::Continuing) => return Ok(()),
            Ok(Progress::Ended(outcome)) => outcome,
            Err(error) if is_not_ready(&error) => return Ok(()),
            Err(error) => Outcome::Failed(errno_name(&error)),
        };
        let Some(flow) = self.flows.try_remove(token.slot()) else {
            return Ok(());
        };
        if self.ended(flow.entry, flow.begun_ns, &outcome, token.channel())? {
            self.begin(events, token.channel())?;
        }
        Ok(())
    }

    /// Give up the flows whose servers have been silent for too long: a machine or a box that vanishes closes no
    /// connection, and a receiver alone does not learn of it.
    ///
    /// # Errors
    /// As of [`ChannelSet::begin_due`].
    pub fn fail_silent_flows(&mut self, now_ns: u64) -> io::Result<()> {
        let limit_ns = self.config.silence_ns;
        let silent = |flow: &mut Flow| flow.silent_ns(now_ns) >= limit_ns;
        let slots: Vec<usize> = self
            .flows
            .iter_mut()
            .filter_map(|(slot, flow)| silent(flow).then_some(slot))
            .collect();
        for slot in slots {
            let flow = self.flows.remove(slot);
            flow.reset_when_closed();
            self.silent += 1;
            let outcome = Outcome::Failed(format!("{:?}", Errno::ETIMEDOUT));
            self.ended(flow.entry, flow.begun_ns, &outcome, flow.channel)?;
        }
        Ok(())
    }

    /// The run is over: log the flows in progress as cut.
    ///
    /// # Errors
    /// As of [`ChannelSet::begin_due`].
    pub fn cut(&mut self) -> io::Result<()> {
        let (end_ns, now_ns) = (realtime_ns(), monotonic_ns());
        for (_, flow) in &self.flows {
            flow.reset_when_closed();
            let entry = Entry {
                end_ns,
                ..flow.entry
            };
            self.log.append(&entry, &Outcome::Cut)?;
            let share = flow.moved_bytes() as f64 / entry.size_bytes as f64;
            let spent_ns = now_ns.saturating_sub(flow.begun_ns);
            self.shares
                .ended(flow.channel, entry.size_bytes, share as f32, spent_ns);
        }
        self.log.flush()
    }

    /// Have the log's lines reach the file.
    ///
    /// # Errors
    /// As of [`ChannelSet::begin_due`].
    pub fn flush(&mut self) -> io::Result<()> {
        self.log.flush()
    }

    /// Counters of the flows so far.
    pub fn counters(&self) -> Counters {
        Counters {
            t_ns: realtime_ns(),
            flows_completed: self.completed,
            flows_failed: self.failed,
            active: self.flows.len(),
            received_bytes: self.received_bytes,
            sent_bytes: self.sent_bytes,
        }
    }

    /// How evenly the channels got on ([`ChannelShares::fairness`]), once [`ChannelSet::cut`] was called.
    pub fn fairness(&self) -> Option<f64> {
        self.shares.fairness()
    }

    fn begin(&mut self, events: &Events, index: usize) -> io::Result<()> {
        let entry = self.channels[index].next(self.config, &self.settings, realtime_ns());
        let (token, begun_ns) = (Token::new(index, self.flows.vacant_key()), monotonic_ns());
        match Flow::begin(entry, begun_ns, self.config, self.control, events, token) {
            Ok(flow) => {
                self.flows.insert(flow);
            }
            Err(error) => {
                let outcome = Outcome::Failed(errno_name(&error));
                self.ended(entry, begun_ns, &outcome, index)?;
            }
        }
        Ok(())
    }

    /// Log a flow that has ended; whether the channel's next one begins at once.
    fn ended(
        &mut self,
        entry: Entry,
        begun_ns: u64,
        outcome: &Outcome,
        index: usize,
    ) -> io::Result<bool> {
        let (end_ns, now_ns) = (realtime_ns(), monotonic_ns());
        self.log.append(&Entry { end_ns, ..entry }, outcome)?;
        let channel = &mut self.channels[index];
        let is_complete = *outcome == Outcome::Completed;
        let spent_ns = now_ns.saturating_sub(begun_ns);
        let share = if is_complete { 1.0 } else { 0.0 };
        self.shares.ended(index, entry.size_bytes, share, spent_ns);
        let back_off_ns = if is_complete {
            self.completed += 1;
            channel.succeeded();
            0
        } else {
            self.failed += 1;
            channel.failed()
        };
        if self.config.is_open_loop() {
            return Ok(false);
        }
        if !self.states[index].active {
            self.states[index].busy = false;
            return Ok(false);
        }
        self.shares.record_pause(index, back_off_ns);
        let wait_ns = channel
            .wait_ns(self.config.seed, &self.settings)
            .max(back_off_ns);
        if wait_ns > 0 {
            self.due
                .push(Reverse((now_ns.saturating_add(wait_ns), index)));
        }
        Ok(wait_ns == 0)
    }
}

/// Waits of a Poisson process go on with another mean at `now_ns`: what is left of an exponential wait is exponential, and
/// has the new mean once it is multiplied by their ratio. What is due already stays due.
fn rescale(
    due: &mut BinaryHeap<Reverse<(u64, usize)>>,
    now_ns: u64,
    former_mean_ns: u64,
    mean_ns: u64,
) {
    let rescaled = due.drain().map(|Reverse((due_ns, index))| {
        let wait_ns = u128::from(due_ns.saturating_sub(now_ns)) * u128::from(mean_ns);
        let wait_ns = u64::try_from(wait_ns / u128::from(former_mean_ns)).unwrap_or(u64::MAX);
        Reverse((due_ns.min(now_ns).saturating_add(wait_ns), index))
    });
    *due = rescaled.collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::SECOND_NS;
    use crate::tests::{LOAD_OPTIONAL, configurations};

    /// Flows that begin in the second from the 10th on, if 60 channels with a flow a minute each have 50 flows/s together
    /// from the 10th second on.
    #[test]
    fn flows_of_an_open_loop_have_the_new_rate_at_once() {
        let mut config: LoadConfig = configurations("load", LOAD_OPTIONAL).remove(0);
        config.channels = (0..60).collect();
        config.pace = Some(FlowStarts::Poisson {
            mean_ns: 60 * SECOND_NS,
        });
        let settings = config.validated().unwrap();
        let path = std::env::temp_dir().join(format!("atoll-rate-{}.csv", std::process::id()));
        let log = FlowLog::create(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut channels = ChannelSet::new(&config, settings, log).unwrap();
        channels.start(0);
        let before = channels.due.len();
        let change = Change {
            after_ns: 10 * SECOND_NS,
            channels: None,
            flow_sizes: None,
            counts: None,
            pace: Some(FlowStarts::Poisson {
                mean_ns: 60 * SECOND_NS / 50,
            }),
        };
        channels.change(&change, 10 * SECOND_NS);
        assert_eq!(channels.due.len(), before);
        let within = |Reverse((due_ns, _)): &&Reverse<(u64, usize)>| {
            (10 * SECOND_NS..11 * SECOND_NS).contains(due_ns)
        };
        // Of some 51 that are still to come 1 - exp(-1 / 1.2) = 57 %: 29 in the mean, with a standard deviation of 4.
        let begun = channels.due.iter().filter(within).count();
        assert!((18..50).contains(&begun), "{begun}");
    }

    #[test]
    fn flows_that_are_due_stay_due_and_others_wait_in_proportion() {
        let mut due = BinaryHeap::from([Reverse((5, 0)), Reverse((10, 1)), Reverse((30, 2))]);
        rescale(&mut due, 10, 1000, 500);
        assert_eq!(
            due.into_sorted_vec(),
            [Reverse((20, 2)), Reverse((10, 1)), Reverse((5, 0))]
        );
    }
}
