// SPDX-License-Identifier: Apache-2.0
//! Ping series and whistles: ICMP echo with the kernel's time stamps, several targets in turn.
//!
//! The pings of a round are spread over its interval: sent together they would queue behind each other at a slow link,
//! and only the first would see the path's own round-trip time.

mod echo;
mod series;
mod socket;

use crate::events::{Events, Wake};
use crate::job::{Input, emit, log_line, monotonic_at, monotonic_ns, realtime_ns, wrong_setting};
use rustix::event::epoll::{Event, EventFlags};
use serde::{Deserialize, Serialize};
use series::{Lost, PingReply, Series, SeriesFigures};
use socket::PingSocket;
use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;

/// Largest payload of one echo request (65,535 bytes of packet less IP and ICMP headers).
const PAYLOAD_MAX_BYTES: usize = 65_507;

/// Pings under way at once must stay far below the 16-bit range of sequence numbers.
const IN_FLIGHT_MAX: u64 = 32_768;

const SOCKET: u64 = 0;

/// Configuration of `atoll-host ping`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PingConfig {
    /// The hosts to ping.
    pub targets: Vec<PingTarget>,
    /// From one ping of a target to its next.
    pub interval_ns: u64,
    /// How many pings for each target; null means until stopped.
    pub count: Option<u64>,
    /// After which a ping without an answer is lost.
    pub timeout_ns: u64,
    /// ICMP payload bytes: 56 make a packet of 84 bytes.
    pub size_bytes: usize,
    /// ICMP identifier, different for each pinging process of a host.
    pub identifier: u16,
    /// Text at the start of the payload; zero bytes fill the rest.
    pub payload: String,
    /// When to send the first ping, real time; an instant in the past means at once.
    pub start_at_ns: i64,
}

/// A host to ping.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PingTarget {
    /// Its name in messages.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
}

impl PingConfig {
    fn validate(&self) -> io::Result<()> {
        if self.targets.is_empty() {
            return Err(wrong_setting("targets: give at least one"));
        }
        for (index, target) in self.targets.iter().enumerate() {
            let earlier = &self.targets[..index];
            if earlier
                .iter()
                .any(|other| other.name == target.name || other.address == target.address)
            {
                return Err(wrong_setting(format!(
                    "targets: {} ({}) is listed twice",
                    target.name, target.address
                )));
            }
        }
        if self.interval_ns == 0 {
            return Err(wrong_setting("interval_ns: must be above 0"));
        }
        if self.timeout_ns / self.interval_ns >= IN_FLIGHT_MAX {
            return Err(wrong_setting(format!(
                "timeout_ns: must be below {IN_FLIGHT_MAX} intervals"
            )));
        }
        if self.size_bytes > PAYLOAD_MAX_BYTES {
            return Err(wrong_setting(format!(
                "size_bytes: at most {PAYLOAD_MAX_BYTES}"
            )));
        }
        if self.payload.len() > self.size_bytes {
            return Err(wrong_setting(format!(
                "payload: its {} bytes do not fit in size_bytes",
                self.payload.len()
            )));
        }
        Ok(())
    }

    fn payload(&self) -> Vec<u8> {
        let mut payload = self.payload.clone().into_bytes();
        payload.resize(self.size_bytes, 0);
        payload
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Message<'a> {
    Ready,
    Reply {
        target: &'a str,
        #[serde(flatten)]
        reply: PingReply,
    },
    Lost {
        target: &'a str,
        #[serde(flatten)]
        lost: Lost,
    },
    Done {
        targets: BTreeMap<&'a str, SeriesFigures>,
    },
}

/// Ping until all pings are answered or lost, or the job is to stop.
///
/// # Errors
/// If the configuration is wrong or raw sockets are not allowed.
pub fn ping(config: &PingConfig, input: Input) -> io::Result<()> {
    config.validate()?;
    let socket = PingSocket::open()?;
    let mut events = Events::for_job(input)?;
    events.add(&socket, SOCKET, EventFlags::IN)?;
    emit(&Message::Ready)?;

    let mut pinger = Pinger {
        config,
        payload: config.payload(),
        socket,
        targets: config
            .targets
            .iter()
            .map(|target| TargetSeries {
                target,
                series: Series::default(),
                error_logged: false,
            })
            .collect(),
    };
    pinger.run(&mut events)?;
    pinger.give_up(u64::MAX)?;
    let targets = pinger
        .targets
        .iter()
        .map(|t| (t.target.name.as_str(), t.series.summary()))
        .collect();
    emit(&Message::Done { targets })
}

struct Pinger<'a> {
    config: &'a PingConfig,
    payload: Vec<u8>,
    socket: PingSocket,
    targets: Vec<TargetSeries<'a>>,
}

struct TargetSeries<'a> {
    target: &'a PingTarget,
    series: Series,
    /// Sending has failed before, and that was logged.
    error_logged: bool,
}

impl Pinger<'_> {
    fn run(&mut self, events: &mut Events) -> io::Result<()> {
        let mut rounds_left = self.config.count.unwrap_or(u64::MAX);
        let mut round_ns = monotonic_at(self.config.start_at_ns);
        let mut turn = 0;
        let mut ready: Vec<Event> = Vec::with_capacity(4);
        loop {
            let expiry_ns = self
                .targets
                .iter()
                .filter_map(|target_series| target_series.series.next_expiry_ns())
                .min();
            let turn_ns = (rounds_left > 0).then(|| self.turn_ns(round_ns, turn));
            let Some(until_ns) = [turn_ns, expiry_ns].into_iter().flatten().min() else {
                return Ok(());
            };
            if events.wait(&mut ready, Some(until_ns))? == Wake::Stop {
                return Ok(());
            }
            if let Some(event) = ready.first() {
                self.take_replies(event.flags)?;
            }
            let now_ns = monotonic_ns();
            self.give_up(now_ns)?;
            if turn_ns.is_some_and(|due_ns| now_ns >= due_ns) {
                self.send(turn, now_ns)?;
                turn += 1;
                if turn == self.targets.len() {
                    turn = 0;
                    rounds_left -= 1;
                    round_ns = following_round(round_ns, now_ns, self.config.interval_ns);
                }
            }
        }
    }

    /// When a target's turn comes in the round that begins at `round_ns`.
    fn turn_ns(&self, round_ns: u64, turn: usize) -> u64 {
        let share = u128::from(self.config.interval_ns) * turn as u128 / self.targets.len() as u128;
        round_ns.saturating_add(share as u64) // below interval_ns
    }

    fn send(&mut self, turn: usize, now_ns: u64) -> io::Result<()> {
        let TargetSeries {
            target,
            series,
            error_logged,
        } = &mut self.targets[turn];
        let message = echo::request(self.config.identifier, series.next as u16, &self.payload);
        let expires_ns = now_ns.saturating_add(self.config.timeout_ns);
        match self.socket.send(target.address, &message) {
            Ok(sent_ns) => series.sent(sent_ns, expires_ns),
            Err(error) => {
                series.sent(realtime_ns(), expires_ns);
                series.refused();
                if !*error_logged {
                    log_line(&format!(
                        "cannot send to {} ({}): {error}",
                        target.name, target.address
                    ));
                    *error_logged = true;
                }
            }
        }
        self.take_transmit_stamps()
    }

    fn take_transmit_stamps(&mut self) -> io::Result<()> {
        while let Some((echo, sent_ns)) = self.socket.transmitted(self.payload.len())? {
            let target_series = self
                .targets
                .iter_mut()
                .find(|target_series| target_series.target.address == echo.destination);
            if let Some(target_series) = target_series {
                target_series.series.stamped(echo.sequence, sent_ns);
            }
        }
        Ok(())
    }

    fn take_replies(&mut self, flags: EventFlags) -> io::Result<()> {
        if flags.contains(EventFlags::ERR) {
            self.take_transmit_stamps()?;
        }
        while let Some((echo, received_ns, stamped)) = self.socket.receive()? {
            if echo.identifier != self.config.identifier || echo.payload != self.payload {
                continue;
            }
            let target_series = self
                .targets
                .iter_mut()
                .find(|target_series| target_series.target.address == echo.source);
            let Some(TargetSeries { target, series, .. }) = target_series else {
                continue;
            };
            if let Some(reply) = series.replied(echo.sequence, received_ns, stamped) {
                let target = &target.name;
                emit(&Message::Reply { target, reply })?;
            }
        }
        Ok(())
    }

    /// Report pings without a reply until `now_ns` as lost.
    fn give_up(&mut self, now_ns: u64) -> io::Result<()> {
        for TargetSeries { target, series, .. } in &mut self.targets {
            for lost in series.expire(now_ns) {
                let target = &target.name;
                emit(&Message::Lost { target, lost })?;
            }
        }
        Ok(())
    }
}

/// When the round after the one of `round_ns` is due. Wake-ups that come late do not add up; but after a pause of
/// more than an interval (a suspended machine) the schedule restarts instead of catching up with a burst.
fn following_round(round_ns: u64, now_ns: u64, interval_ns: u64) -> u64 {
    let due_ns = round_ns.saturating_add(interval_ns);
    if now_ns.saturating_sub(due_ns) > interval_ns {
        now_ns.saturating_add(interval_ns)
    } else {
        due_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{assert_in_contract, configurations};

    #[test]
    fn messages_are_those_of_the_contract() {
        let configs: Vec<PingConfig> = configurations("ping", &["count"]);
        assert!(configs.iter().all(|config| config.validate().is_ok()));
        assert_in_contract("ping", "ping", &Message::Ready);
        let mut series = Series::default();
        series.sent(1_795_254_139_117_395_561, 1);
        let targets = BTreeMap::from([("i1", series.summary())]);
        assert_in_contract("ping", "ping", &Message::Done { targets });
        series.stamped(0, 1_795_254_139_117_395_561);
        series.sent(1_795_254_139_217_395_561, 1);
        series.refused();
        let reply = series.replied(0, 1_795_254_139_617_817_984, true).unwrap();
        let target = "i1";
        assert_in_contract("ping", "ping", &Message::Reply { target, reply });
        let lost = series.expire(1)[0];
        assert_in_contract("ping", "ping", &Message::Lost { target, lost });
        let targets = BTreeMap::from([("i1", series.summary())]);
        assert_in_contract("ping", "ping", &Message::Done { targets });
    }

    #[test]
    fn lateness_does_not_add_up_and_a_pause_makes_no_burst() {
        assert_eq!(following_round(1000, 1040, 100), 1100);
        assert_eq!(following_round(1000, 1190, 100), 1100);
        assert_eq!(following_round(1000, 9000, 100), 9100);
    }

    #[test]
    fn configurations_that_cannot_work_are_refused() {
        let good = PingConfig {
            targets: vec![PingTarget {
                name: "i1".into(),
                address: Ipv4Addr::LOCALHOST,
            }],
            interval_ns: 1_000_000,
            count: Some(1),
            timeout_ns: 1_000_000_000,
            size_bytes: 56,
            identifier: 1,
            payload: "atoll ping".into(),
            start_at_ns: 0,
        };
        assert!(good.validate().is_ok());
        assert_eq!(good.payload().len(), 56);
        let twice = [&good.targets[..], &good.targets[..]].concat();
        for (bad, field) in [
            (
                PingConfig {
                    targets: vec![],
                    ..good.clone()
                },
                "targets",
            ),
            (
                PingConfig {
                    targets: twice,
                    ..good.clone()
                },
                "targets",
            ),
            (
                PingConfig {
                    interval_ns: 0,
                    ..good.clone()
                },
                "interval_ns",
            ),
            (
                PingConfig {
                    timeout_ns: 40_000_000_000,
                    ..good.clone()
                },
                "timeout_ns",
            ),
            (
                PingConfig {
                    size_bytes: 65_508,
                    ..good.clone()
                },
                "size_bytes",
            ),
            (
                PingConfig {
                    size_bytes: 3,
                    ..good.clone()
                },
                "payload",
            ),
        ] {
            let message = bad.validate().unwrap_err().to_string();
            assert!(
                message.starts_with(&format!("configuration: {field}: ")),
                "{message}"
            );
        }
    }
}
