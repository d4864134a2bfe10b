// SPDX-License-Identifier: Apache-2.0
//! Island client: channels that fetch flow after flow.
//!
//! A channel loops: draw flow k, connect to its server, ask for its bytes, receive until the server closes, log,
//! take flow k + 1 at once. All channels of a process share one thread and one epoll loop ([`turns`] says why
//! none can starve). A flow that fails is logged too, and the channel goes on with the next one after a back-off
//! of 0.1 s that doubles with each failure in a row, up to 5 s, so that an absent server costs nearly nothing.

mod channel;
mod flow_log;
mod turns;

use crate::clock::{SECOND_NS, monotonic_at, monotonic_ns, realtime_ns};
use crate::events::{Events, Wake};
use crate::failure::Failure;
use crate::job::{say, tell};
use crate::socket::{check_congestion_control, raise_descriptor_limit};
use channel::{Channel, Next};
use flow_log::FlowLog;
use flow_sizes::Distribution;
use rustix::event::epoll::Event;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use turns::Turns;

/// Read from one channel in one turn at most. Larger than what arrives between two turns on a satellite link,
/// small enough that a thousand channels with full buffers are served in a fraction of a second.
const READ_BYTES: usize = 1 << 18;

/// Configuration of `atoll-host load`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadConfig {
    /// Seed of the experiment.
    pub seed: u64,
    /// Numbers of the channels that run here, unique in the experiment.
    pub channels: Vec<u64>,
    /// All servers of the experiment, in the same order on every client.
    pub servers: Vec<SocketAddr>,
    /// Name of the flow-size distribution.
    pub flow_sizes: String,
    /// When to start, real time; an instant in the past means at once.
    pub start_at_ns: i64,
    /// How long to go on; 0 means until stopped.
    pub duration_ns: u64,
    /// TCP congestion control of the client's sockets.
    pub congestion_control: String,
    /// The CSV file to write, a line a flow.
    pub flow_log: PathBuf,
}

impl LoadConfig {
    /// # Errors
    /// If there are no channels or servers, a channel is there twice, or the distribution is unknown.
    fn validated(&self) -> Result<Distribution, Failure> {
        let wrong =
            |message: &str| Err(Failure::Configuration(format!("configuration: {message}")));
        if self.channels.is_empty() {
            return wrong("channels: give at least one");
        }
        if self.servers.is_empty() {
            return wrong("servers: give at least one");
        }
        let mut seen = HashSet::new();
        if let Some(twice) = self.channels.iter().find(|channel| !seen.insert(**channel)) {
            return wrong(&format!("channels: {twice} is there twice"));
        }
        self.flow_sizes
            .parse()
            .map_err(|error| Failure::Configuration(format!("configuration: flow_sizes: {error}")))
    }
}

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
        fairness: f64,
        channels_served: usize,
        longest_turn_ns: u64,
    },
}

/// What all channels did since the start.
#[derive(Clone, Copy, Debug, Serialize)]
struct Counters {
    t_ns: i64,
    flows_completed: u64,
    flows_failed: u64,
    active: usize,
    received_bytes: u64,
}

/// What the channels share.
struct Shared<'a> {
    config: &'a LoadConfig,
    sizes: Distribution,
    events: Events,
    log: FlowLog,
    buffer: Vec<u8>,
    flows_completed: u64,
    flows_failed: u64,
    received_bytes: u64,
}

/// Run the channels until the duration is over or the word to stop comes.
///
/// # Errors
/// If the configuration is wrong, the congestion control refused, or the flow log cannot be written.
pub fn load(config: &LoadConfig) -> Result<(), Failure> {
    let sizes = config.validated()?;
    check_congestion_control(&config.congestion_control)?;
    let descriptors = raise_descriptor_limit();
    let needed = config.channels.len() as u64 + 16;
    if descriptors < needed {
        return Err(Failure::Runtime(format!(
            "{} channels need {needed} file descriptors, {descriptors} are allowed: raise `ulimit -n`",
            config.channels.len()
        )));
    }
    let log = FlowLog::create(&config.flow_log)?;
    let events = Events::of_job()?;
    let buffer = vec![0; READ_BYTES];
    say(&Message::Ready)?;

    let shared = Shared {
        config,
        sizes,
        events,
        log,
        buffer,
        flows_completed: 0,
        flows_failed: 0,
        received_bytes: 0,
    };
    let mut client = Client {
        channels: config
            .channels
            .iter()
            .map(|&number| Channel::new(number))
            .collect(),
        turns: Turns::new(config.channels.len()),
        waiting: BinaryHeap::new(),
        longest_turn_ns: 0,
        shared,
    };
    client.run()?;
    say(&client.done())
}

struct Client<'a> {
    channels: Vec<Channel>,
    turns: Turns,
    /// (monotonic time of the next attempt, index) of channels that wait after a failure.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    longest_turn_ns: u64,
    shared: Shared<'a>,
}

impl Client<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        // Room for every channel: each turn then sees all that are ready.
        let mut ready = Vec::with_capacity(self.channels.len() + 8);
        let start_ns = monotonic_at(self.shared.config.start_at_ns);
        while monotonic_ns() < start_ns {
            if self.shared.events.wait(&mut ready, Some(start_ns))? == Wake::Stop {
                return Ok(());
            }
        }
        say(&Message::Started {
            t_ns: realtime_ns(),
        })?;
        for index in 0..self.channels.len() {
            self.begin(index)?;
        }
        self.work(&mut ready, start_ns)?;
        for channel in &mut self.channels {
            channel.cut(&mut self.shared)?;
        }
        self.shared.log.flush()
    }

    fn work(&mut self, ready: &mut Vec<Event>, start_ns: u64) -> Result<(), Failure> {
        let end_ns = match self.shared.config.duration_ns {
            0 => u64::MAX,
            duration_ns => start_ns.saturating_add(duration_ns),
        };
        let mut tick_ns = start_ns + SECOND_NS;
        loop {
            let retry_ns = self
                .waiting
                .peek()
                .map_or(u64::MAX, |Reverse((due_ns, _))| *due_ns);
            let wake = self
                .shared
                .events
                .wait(ready, Some(end_ns.min(tick_ns).min(retry_ns)))?;
            let turn_ns = monotonic_ns();
            if wake == Wake::Stop || turn_ns >= end_ns {
                return Ok(());
            }
            self.turn(ready)?;
            let now_ns = monotonic_ns();
            self.longest_turn_ns = self.longest_turn_ns.max(now_ns - turn_ns);
            while let Some(&Reverse((due_ns, index))) = self.waiting.peek() {
                if due_ns > now_ns {
                    break;
                }
                self.waiting.pop();
                self.begin(index)?;
            }
            if now_ns >= tick_ns {
                tick_ns = now_ns + SECOND_NS;
                self.shared.log.flush()?;
                say(&Message::Counters(self.counters()))?;
            }
        }
    }

    /// Serve every ready channel once.
    fn turn(&mut self, ready: &[Event]) -> Result<(), Failure> {
        let Self {
            channels,
            turns,
            waiting,
            shared,
            ..
        } = self;
        turns.take(ready, |index, flags| {
            let next = channels[index].service(index, flags, shared)?;
            schedule(waiting, index, next);
            Ok(())
        })
    }

    fn begin(&mut self, index: usize) -> Result<(), Failure> {
        let next = self.channels[index].begin(index, &mut self.shared)?;
        schedule(&mut self.waiting, index, next);
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters {
            t_ns: realtime_ns(),
            flows_completed: self.shared.flows_completed,
            flows_failed: self.shared.flows_failed,
            active: self
                .channels
                .iter()
                .filter(|channel| channel.is_active())
                .count(),
            received_bytes: self.shared.received_bytes,
        }
    }

    fn done(&self) -> Message {
        if self.shared.flows_failed > 0 {
            tell(&format!(
                "{} flows failed; the flow log says why",
                self.shared.flows_failed
            ));
        }
        Message::Done {
            counters: self.counters(),
            fairness: self.turns.fairness(),
            channels_served: self.turns.served_channels(),
            longest_turn_ns: self.longest_turn_ns,
        }
    }
}

fn schedule(waiting: &mut BinaryHeap<Reverse<(u64, usize)>>, index: usize, next: Next) {
    if let Next::After(wait_ns) = next {
        waiting.push(Reverse((monotonic_ns() + wait_ns, index)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{assert_said, configurations};

    #[test]
    fn messages_are_those_of_the_contract() {
        let configs: Vec<LoadConfig> = configurations("load", &[]);
        assert!(configs[0].validated().is_ok());
        assert_said("load", "load", &Message::Ready);
        assert_said(
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
        };
        assert_said("load", "load", &Message::Counters(counters));
        let counters = Counters {
            t_ns: 1_795_254_193_000_338_882,
            flows_completed: 14_959,
            received_bytes: 801_604_325,
            ..counters
        };
        let done = Message::Done {
            counters,
            fairness: 1.0,
            channels_served: 3,
            longest_turn_ns: 2_500_000,
        };
        assert_said("load", "load", &done);
    }

    #[test]
    fn configurations_that_cannot_work_are_refused() {
        let good = configurations::<LoadConfig>("load", &[]).remove(0);
        for (bad, message) in [
            (
                LoadConfig {
                    channels: vec![],
                    ..good.clone()
                },
                "channels: give at least one",
            ),
            (
                LoadConfig {
                    channels: vec![3, 4, 3],
                    ..good.clone()
                },
                "channels: 3 is there twice",
            ),
            (
                LoadConfig {
                    servers: vec![],
                    ..good.clone()
                },
                "servers: give at least one",
            ),
            (
                LoadConfig {
                    flow_sizes: "x".into(),
                    ..good.clone()
                },
                "flow_sizes: unknown flow-size distribution 'x'; known: published",
            ),
        ] {
            assert_eq!(
                bad.validated().unwrap_err().to_string(),
                format!("configuration: {message}")
            );
        }
    }
}
