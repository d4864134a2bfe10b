// SPDX-License-Identifier: Apache-2.0
//! Probes of the data plane: packets with a mark, sent from here or by a switch, seen wherever a job like this runs.

mod filter;
mod probe_header;
mod socket;

use crate::events::{Events, Wake};
use crate::job::{Input, emit, log_line, monotonic_at, monotonic_ns, wrong_setting};
use probe_header::{ICMP, Probe, ProbeHeader};
use rustix::event::epoll::{Event, EventFlags};
use serde::{Deserialize, Serialize};
use socket::{ProbeArrival, Sender, Watcher};
use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;

const ARRIVALS: u64 = 0;

/// Configuration of `atoll-host probe`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeConfig {
    /// Whose probes: others are ignored.
    pub session: u32,
    /// The host's own address, from which it sends and answers; null where it only watches.
    pub address: Option<Ipv4Addr>,
    /// Interfaces that take in every frame meanwhile: of taps and boxes, whose frames are for others.
    #[serde(default)]
    pub promiscuous: Vec<String>,
    /// The probes to send, all at once in each round.
    pub send: Vec<ProbeTarget>,
    /// How often each is sent.
    pub attempts: u16,
    /// From one attempt to the next.
    pub interval_ns: u64,
    /// Those that have been answered are not sent again.
    pub until_answered: bool,
    /// When to send first, real time; an instant in the past means at once.
    pub start_at_ns: i64,
}

/// A probe to send.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeTarget {
    /// Which of the session's probes it is.
    pub number: u32,
    /// Where to.
    pub address: Ipv4Addr,
    /// As in the IPv4 header: 1 is ICMP, 6 TCP, 17 UDP.
    pub protocol: u8,
}

impl ProbeConfig {
    fn validate(&self) -> io::Result<()> {
        if self.address.is_none() && !self.send.is_empty() {
            return Err(wrong_setting("address: who sends needs one"));
        }
        let mut numbers = BTreeSet::new();
        for target in &self.send {
            if !numbers.insert(target.number) {
                let number = target.number;
                return Err(wrong_setting(format!(
                    "send: number {number} is listed twice"
                )));
            }
        }
        if self.interval_ns == 0 {
            return Err(wrong_setting("interval_ns: must be above 0"));
        }
        Ok(())
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Message<'a> {
    Ready,
    Sent {
        number: u32,
        attempt: u16,
        t_ns: i64,
    },
    Seen {
        number: u32,
        attempt: u16,
        answer: bool,
        interface: &'a str,
        vlan: Option<u16>,
        t_ns: i64,
    },
    Done {
        sent: u64,
        failed: u64,
        seen: u64,
    },
}

/// Send the configured probes, report received ones and answer those that only this job answers, until the job is stopped.
///
/// # Errors
/// If the configuration is wrong or raw sockets are not allowed.
pub fn probe(config: &ProbeConfig, input: Input) -> io::Result<()> {
    config.validate()?;
    let watcher = Watcher::open(config.session, &config.promiscuous)?;
    let sender = config.address.map(|_| Sender::open()).transpose()?;
    let mut events = Events::for_job(input)?;
    events.add(&watcher, ARRIVALS, EventFlags::IN)?;
    emit(&Message::Ready)?;
    let mut prober = Prober {
        config,
        watcher,
        sender,
        answered: BTreeSet::new(),
        error_logged: false,
        sent: 0,
        failed: 0,
        seen: 0,
    };
    prober.run(&mut events)?;
    emit(&Message::Done {
        sent: prober.sent,
        failed: prober.failed,
        seen: prober.seen,
    })
}

struct Prober<'a> {
    config: &'a ProbeConfig,
    watcher: Watcher,
    sender: Option<Sender>,
    answered: BTreeSet<u32>,
    /// Sending has failed before, and that was logged.
    error_logged: bool,
    sent: u64,
    failed: u64,
    seen: u64,
}

impl Prober<'_> {
    fn run(&mut self, events: &mut Events) -> io::Result<()> {
        let mut ready: Vec<Event> = Vec::with_capacity(4);
        let mut attempt = 0;
        let mut next_ns = monotonic_at(self.config.start_at_ns);
        loop {
            let is_sending = attempt < self.config.attempts && !self.config.send.is_empty();
            let woken = events.wait(&mut ready, is_sending.then_some(next_ns))?;
            while let Some(arrival) = self.watcher.receive()? {
                self.on_arrival(&arrival)?;
            }
            if woken == Wake::Stop {
                return Ok(()); // all that had arrived by now was reported
            }
            if is_sending && monotonic_ns() >= next_ns {
                self.send_all(attempt)?;
                attempt += 1;
                next_ns += self.config.interval_ns;
            }
        }
    }

    fn send_all(&mut self, attempt: u16) -> io::Result<()> {
        let config = self.config;
        for target in &config.send {
            if config.until_answered && self.answered.contains(&target.number) {
                continue;
            }
            let header = ProbeHeader {
                session: config.session,
                number: target.number,
                attempt,
                answer: false,
            };
            if let Some(t_ns) = self.send(target.address, target.protocol, header) {
                emit(&Message::Sent {
                    number: target.number,
                    attempt,
                    t_ns,
                })?;
            }
        }
        Ok(())
    }

    fn send(&mut self, to: Ipv4Addr, protocol: u8, header: ProbeHeader) -> Option<i64> {
        let (source, sender) = (self.config.address?, self.sender.as_ref()?);
        let probe = Probe {
            source,
            destination: to,
            protocol,
            header,
        };
        match sender.send(&probe) {
            Ok(sent_ns) => {
                self.sent += 1;
                Some(sent_ns)
            }
            Err(error) => {
                self.failed += 1;
                if !self.error_logged {
                    log_line(&format!("cannot send to {to}: {error}"));
                    self.error_logged = true;
                }
                None
            }
        }
    }

    fn on_arrival(&mut self, arrival: &ProbeArrival) -> io::Result<()> {
        let Probe {
            source,
            destination,
            protocol,
            header,
        } = arrival.probe;
        self.seen += 1;
        let is_own = self.config.address == Some(destination);
        if is_own && header.answer {
            self.answered.insert(header.number);
        } else if is_own && protocol != ICMP {
            let answer = arrival.probe.answer_probe();
            self.send(source, protocol, answer.header);
        }
        emit(&Message::Seen {
            number: header.number,
            attempt: header.attempt,
            answer: header.answer,
            interface: &arrival.interface,
            vlan: arrival.vlan,
            t_ns: arrival.t_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{assert_in_contract, configurations};

    #[test]
    fn configurations_are_those_of_the_contract() {
        let configurations = configurations::<ProbeConfig>("probe", &["address", "promiscuous"]);
        assert!(
            configurations
                .iter()
                .all(|config| config.validate().is_ok())
        );
        assert_eq!(configurations[0].send[1].protocol, probe_header::TCP);
        assert_eq!(configurations[1].address, None);
    }

    #[test]
    fn messages_are_those_of_the_contract() {
        for message in [
            Message::Ready,
            Message::Sent {
                number: 0,
                attempt: 1,
                t_ns: 1_795_254_139_117_395_561,
            },
            Message::Seen {
                number: 0,
                attempt: 0,
                answer: false,
                interface: "i1-eth0",
                vlan: None,
                t_ns: 1_795_254_139_367_395_561,
            },
            Message::Seen {
                number: 0,
                attempt: 1,
                answer: true,
                interface: "w1-eth0",
                vlan: Some(101),
                t_ns: 1_795_254_139_617_817_984,
            },
            Message::Done {
                sent: 4,
                failed: 0,
                seen: 2,
            },
        ] {
            assert_in_contract("probe", "probe", &message);
        }
    }

    #[test]
    fn bad_configurations_are_refused_by_the_name_of_the_field() {
        let good = configurations::<ProbeConfig>("probe", &["address", "promiscuous"]).remove(0);
        let mut twice = good.clone();
        twice.send[1].number = twice.send[0].number;
        for (bad, field) in [
            (
                ProbeConfig {
                    address: None,
                    ..good.clone()
                },
                "address",
            ),
            (twice, "send"),
            (
                ProbeConfig {
                    interval_ns: 0,
                    ..good.clone()
                },
                "interval_ns",
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
