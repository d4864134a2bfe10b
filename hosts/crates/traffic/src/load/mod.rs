// SPDX-License-Identifier: Apache-2.0
//! Island client: channels that download or upload flow after flow.
//!
//! A channel loops: draw flow k, connect to its server, ask for its bytes, receive until the server closes, log,
//! take flow k + 1 at once, or when its [`config::FlowStarts`] says. All channels of a process share one thread and one epoll
//! loop ([`fair_scheduler`] says why none can starve). A flow that fails is logged too, and the channel goes on with the next one
//! after a back-off of 0.1 s that doubles with each failure in a row, up to 5 s, so that an absent server costs nearly
//! nothing. A flow whose server has been silent for three minutes has failed. In an open loop flows begin whatever became
//! of those before, so a channel may have any number in progress.

mod channel;
mod channel_set;
mod config;
mod fair_scheduler;
mod fairness;
mod flow;
mod flow_log;

use crate::events::{Events, Wake};
use crate::job::{Input, SECOND_NS, emit, log_line, monotonic_at, monotonic_ns, realtime_ns};
use crate::serve::is_zero;
use crate::socket::check_congestion_control;
use atoll_netio::privileges::{CapabilitySet, drop_capabilities};
use atoll_netio::process::raise_descriptor_limit;
use channel_set::ChannelSet;
use config::Change;
pub use config::LoadConfig;
use fair_scheduler::FairScheduler;
use flow_log::FlowLog;
use rustix::event::epoll::Event;
use serde::Serialize;
use std::io;
use std::iter::Peekable;
use std::slice::Iter;

/// Read from one channel in one turn at most. Larger than what arrives between two turns on a satellite link,
/// small enough that a thousand channels with full buffers are served in a fraction of a second.
const READ_BYTES: usize = 1 << 18;

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Message {
    Ready,
    Started {
        t_ns: i64,
    },
    Counters(Counters),
    Done {
        #[serde(flatten)]
        counters: Counters,
        flows_silent: u64,
        fairness: Option<f64>,
        channels_served: usize,
        longest_wait_ns: u64,
        longest_turn_ns: u64,
        latest_begin_ns: u64,
    },
}

/// Counters of all channels since the start.
#[derive(Clone, Copy, Debug, Serialize)]
struct Counters {
    t_ns: i64,
    flows_completed: u64,
    flows_failed: u64,
    active: usize,
    received_bytes: u64,
    /// Payload of uploads that was handed to the kernel.
    #[serde(skip_serializing_if = "is_zero")]
    sent_bytes: u64,
}

/// Run the channels until the duration is over or the job is to stop.
///
/// # Errors
/// If the configuration is wrong, the congestion control refused, or the flow log cannot be written.
pub fn load(config: &LoadConfig, input: Input) -> io::Result<()> {
    let settings = config.validated()?;
    let channels = config.all_channels().len();
    check_congestion_control(&config.congestion_control)?;
    let descriptors = raise_descriptor_limit();
    let needed = channels as u64 + 16;
    if descriptors < needed {
        return Err(io::Error::other(format!(
            "{channels} channels need {needed} file descriptors, {descriptors} are allowed: raise `ulimit -n`"
        )));
    }
    let log = FlowLog::create(&config.flow_log)?;
    drop_capabilities(CapabilitySet::DAC_OVERRIDE)?; // only the file may be anywhere
    let events = Events::for_job(input)?;
    emit(&Message::Ready)?;

    let mut client = Client {
        config,
        channels: ChannelSet::new(config, settings, log)?,
        changes: config.changes.iter().peekable(),
        events,
        scheduler: FairScheduler::new(channels),
    };
    client.run()?;
    emit(&client.done())
}

struct Client<'a> {
    config: &'a LoadConfig,
    channels: ChannelSet<'a>,
    /// Those to come.
    changes: Peekable<Iter<'a, Change>>,
    events: Events,
    scheduler: FairScheduler,
}

impl Client<'_> {
    fn run(&mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        let start_ns = monotonic_at(self.config.start_at_ns);
        while monotonic_ns() < start_ns {
            if self.wait(&mut ready, start_ns)? == Wake::Stop {
                return Ok(());
            }
        }
        emit(&Message::Started {
            t_ns: realtime_ns(),
        })?;
        self.channels.start(start_ns);
        self.work(&mut ready, start_ns)?;
        self.channels.cut()
    }

    fn work(&mut self, ready: &mut Vec<Event>, start_ns: u64) -> io::Result<()> {
        let end_ns = match self.config.duration_ns {
            0 => u64::MAX,
            duration_ns => start_ns.saturating_add(duration_ns),
        };
        let at_ns = |change: &Change| start_ns.saturating_add(change.after_ns);
        let mut tick_ns = start_ns + SECOND_NS;
        loop {
            let due_ns = self.channels.next_due_ns().unwrap_or(u64::MAX);
            let change_ns = self.changes.peek().map_or(u64::MAX, |change| at_ns(change));
            let wake = self.wait(ready, end_ns.min(tick_ns).min(due_ns).min(change_ns))?;
            let turn_ns = monotonic_ns();
            if wake == Wake::Stop || turn_ns >= end_ns {
                return Ok(());
            }
            self.scheduler
                .serve(ready, turn_ns, monotonic_ns, |token, flags| {
                    self.channels.service(&self.events, token, flags)
                })?;
            let now_ns = monotonic_ns();
            while let Some(change) = self.changes.next_if(|change| at_ns(change) <= now_ns) {
                self.channels.change(change, at_ns(change));
            }
            self.channels.begin_due(&self.events, now_ns)?;
            if now_ns >= tick_ns {
                tick_ns = now_ns + SECOND_NS;
                self.channels.fail_silent_flows(now_ns)?;
                self.channels.flush()?;
                if !self.config.quiet {
                    emit(&Message::Counters(self.channels.counters()))?;
                }
            }
            self.scheduler.end_turn(monotonic_ns());
        }
    }

    fn wait(&mut self, ready: &mut Vec<Event>, until_ns: u64) -> io::Result<Wake> {
        // Room for every flow: each turn then sees all that are ready.
        ready.clear();
        ready.reserve(self.channels.active() + 8);
        self.events.wait(ready, Some(until_ns))
    }

    fn done(&self) -> Message {
        let counters = self.channels.counters();
        if counters.flows_failed > 0 {
            log_line(&format!(
                "{} flows failed; the flow log has the reasons",
                counters.flows_failed
            ));
        }
        let flows_silent = self.channels.silent;
        if flows_silent > 0 {
            log_line(&format!(
                "{flows_silent} of them received no byte for {} s and were ended (ETIMEDOUT)",
                self.config.silence_ns / SECOND_NS
            ));
        }
        Message::Done {
            counters,
            flows_silent,
            fairness: self.channels.fairness(),
            channels_served: self.scheduler.served_channels(),
            longest_wait_ns: self.scheduler.longest_wait_ns(monotonic_ns()),
            longest_turn_ns: self.scheduler.longest_turn_ns,
            latest_begin_ns: self.channels.latest_begin_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::assert_in_contract;

    #[test]
    fn messages_are_those_of_the_contract() {
        assert_in_contract("load", "load", &Message::Ready);
        assert_in_contract(
            "load",
            "load",
            &Message::Started {
                t_ns: 1_795_254_133_000_079_727,
            },
        );
        let counters = Counters {
            t_ns: 1_795_254_134_000_875_619,
            flows_completed: 726,
            flows_failed: 1,
            active: 3,
            received_bytes: 208_356_086,
            sent_bytes: 0,
        };
        assert_in_contract("load", "load", &Message::Counters(counters));
        let uploads = Counters {
            received_bytes: 0,
            sent_bytes: 208_356_086,
            ..counters
        };
        assert_in_contract("load", "load", &Message::Counters(uploads));
        let counters = Counters {
            t_ns: 1_795_254_193_000_338_882,
            flows_completed: 14_959,
            received_bytes: 801_604_325,
            ..counters
        };
        let done = Message::Done {
            counters,
            flows_silent: 1,
            fairness: Some(0.998),
            channels_served: 3,
            longest_wait_ns: 3_100_000,
            longest_turn_ns: 2_500_000,
            latest_begin_ns: 80_000,
        };
        assert_in_contract("load", "load", &done);
    }
}
