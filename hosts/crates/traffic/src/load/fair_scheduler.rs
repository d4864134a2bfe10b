// SPDX-License-Identifier: Apache-2.0
//! The order of service: every ready flow once before any flow again, and how long flows waited for it.
//!
//! A client that serves its sockets in the order of their descriptors, and starts over after each, starves channels
//! above some twenty: finished flows free low descriptors, which new flows take at once. Here one look at the kernel
//! reports *every* flow that is ready, in the order in which they became so, and each gets one service of bounded
//! size before the next look. The wait of a flow is bounded by the number of flows, whatever its descriptor.
//!
//! The wait of a ready flow begins when the look before the one that reported it was over, or with the flow's last
//! service if that was later: it may have become ready at any time since. The time inside the kernel's call is left
//! out, as a client with nothing to do sleeps there. The wait ends with the service; that of a flow which is reported
//! and never served lasts until the end.

use rustix::event::epoll::{Event, EventFlags};
use std::io;

/// The identity of a flow's socket in epoll events: its channel, and its slot among the flows in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(u64);

impl Token {
    /// Of channel `channel` and place `slot`, both below 2^31.
    pub const fn new(channel: usize, slot: usize) -> Self {
        Self((channel as u64) << 32 | slot as u64)
    }

    /// As the kernel keeps it.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The index of the channel.
    pub const fn channel(self) -> usize {
        (self.0 >> 32) as usize
    }

    /// The place of the flow.
    pub const fn slot(self) -> usize {
        (self.0 & 0xffff_ffff) as usize
    }
}

/// Not ready, as far as was reported.
const NOT_READY: u64 = u64::MAX;

/// A flow's place.
#[derive(Clone, Copy, Debug)]
struct Flow {
    /// Since when it has been ready and not served, or [`NOT_READY`].
    ready_ns: u64,
    /// When it was last served.
    served_ns: u64,
}

/// A scheduler that serves the flows of all channels fairly, in turns. All instants are monotonic.
#[derive(Debug, Default)]
pub struct FairScheduler {
    served: Vec<bool>,
    flows: Vec<Flow>,
    /// When the turn in progress began: the kernel's report.
    began_ns: u64,
    /// How long the turn before lasted.
    previous_turn_ns: u64,
    pub longest_turn_ns: u64,
    longest_wait_ns: u64,
}

impl FairScheduler {
    /// Of channels 0 to `channels` - 1.
    pub fn new(channels: usize) -> Self {
        Self {
            served: vec![false; channels],
            ..Self::default()
        }
    }

    /// A turn begins: `serve` every flow of `ready`, reported at `now_ns`, once. `clock` gives the time.
    ///
    /// # Errors
    /// The first of `serve`, which ends the turn.
    pub fn serve(
        &mut self,
        ready: &[Event],
        now_ns: u64,
        clock: impl Fn() -> u64,
        mut serve: impl FnMut(Token, EventFlags) -> io::Result<()>,
    ) -> io::Result<()> {
        self.record_ready(ready, now_ns);
        for event in ready {
            let token = Token(event.data.u64());
            serve(token, event.flags)?;
            self.record_service(token, clock());
        }
        Ok(())
    }

    /// End the turn, with all work before the next poll.
    pub fn end_turn(&mut self, now_ns: u64) {
        self.previous_turn_ns = now_ns.saturating_sub(self.began_ns);
        self.longest_turn_ns = self.longest_turn_ns.max(self.previous_turn_ns);
    }

    fn record_ready(&mut self, ready: &[Event], now_ns: u64) {
        self.began_ns = now_ns;
        let since_ns = now_ns.saturating_sub(self.previous_turn_ns);
        for event in ready {
            let slot = Token(event.data.u64()).slot();
            if slot >= self.flows.len() {
                let new_flow = Flow {
                    ready_ns: NOT_READY,
                    served_ns: 0,
                };
                self.flows.resize(slot + 1, new_flow);
            }
            let flow = &mut self.flows[slot];
            if flow.ready_ns == NOT_READY {
                flow.ready_ns = since_ns.max(flow.served_ns);
            }
        }
    }

    fn record_service(&mut self, token: Token, now_ns: u64) {
        self.served[token.channel()] = true;
        let flow = &mut self.flows[token.slot()];
        self.longest_wait_ns = self
            .longest_wait_ns
            .max(now_ns.saturating_sub(flow.ready_ns));
        *flow = Flow {
            ready_ns: NOT_READY,
            served_ns: now_ns,
        };
    }

    /// The longest that a ready flow has waited for its service, those that still wait at `now_ns` included.
    pub fn longest_wait_ns(&self, now_ns: u64) -> u64 {
        let waiting = self.flows.iter().map(|flow| flow.ready_ns).min();
        let waiting_ns = waiting.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
        self.longest_wait_ns.max(waiting_ns)
    }

    /// How many channels were served at all.
    pub fn served_channels(&self) -> usize {
        self.served.iter().filter(|served| **served).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Events;
    use std::cell::Cell;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    const CHANNELS: usize = 40;
    const SERVICES: u64 = 400;
    const BYTES_PER_SERVICE: usize = 64;
    const SERVICE_NS: u64 = 1000;

    /// Sockets that stay ready through all services of a test, with the loop that watches them.
    fn contended() -> (Events, Vec<TcpStream>, Vec<TcpStream>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let events = Events::new().unwrap();
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for index in 0..CHANNELS {
            let receiver = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut sender, _) = listener.accept().unwrap();
            sender
                .write_all(&vec![0; BYTES_PER_SERVICE * SERVICES as usize])
                .unwrap();
            let token = Token::new(index, CHANNELS - index);
            events
                .add(&receiver, token.number(), EventFlags::IN)
                .unwrap();
            senders.push(sender);
            receivers.push(receiver);
        }
        (events, senders, receivers)
    }

    fn read_some(mut stream: &TcpStream) {
        stream.read_exact(&mut [0; BYTES_PER_SERVICE]).unwrap();
    }

    #[test]
    fn every_ready_flow_is_served_within_two_turns() {
        let (mut events, _senders, receivers) = contended();
        let mut turns = FairScheduler::new(CHANNELS);
        let mut ready = Vec::with_capacity(CHANNELS + 8);
        let now_ns = Cell::new(SERVICE_NS);
        for _ in 0..SERVICES / CHANNELS as u64 {
            events.wait(&mut ready, None).unwrap();
            let serve = |token: Token, _| {
                read_some(&receivers[token.channel()]);
                now_ns.set(now_ns.get() + SERVICE_NS);
                Ok(())
            };
            turns
                .serve(&ready, now_ns.get(), || now_ns.get(), serve)
                .unwrap();
            turns.end_turn(now_ns.get());
        }
        let turn_ns = CHANNELS as u64 * SERVICE_NS;
        assert_eq!(turns.served_channels(), CHANNELS);
        assert_eq!(turns.longest_turn_ns, turn_ns);
        assert_eq!(turns.longest_wait_ns(now_ns.get()), turn_ns);
    }

    #[test]
    fn descriptor_order_starves_and_the_longest_wait_is_the_whole_time() {
        let (mut events, _senders, receivers) = contended();
        let mut turns = FairScheduler::new(CHANNELS);
        let mut ready = Vec::with_capacity(CHANNELS + 8);
        for service in 1..=SERVICES {
            events.wait(&mut ready, None).unwrap();
            turns.record_ready(&ready, service * SERVICE_NS);
            let lowest = ready
                .iter()
                .map(|event| Token(event.data.u64()))
                .min_by_key(|token| token.channel())
                .unwrap();
            read_some(&receivers[lowest.channel()]);
            turns.record_service(lowest, (service + 1) * SERVICE_NS);
            turns.end_turn((service + 1) * SERVICE_NS);
        }
        let now_ns = (SERVICES + 1) * SERVICE_NS;
        assert_eq!(turns.served_channels(), 1);
        assert_eq!(turns.longest_wait_ns(now_ns), SERVICES * SERVICE_NS);
    }

    fn event(slot: usize) -> Event {
        Event {
            flags: EventFlags::IN,
            data: rustix::event::epoll::EventData::new_u64(Token::new(0, slot).number()),
        }
    }

    #[test]
    fn what_keeps_the_client_from_looking_counts_as_waiting_and_sleeping_does_not() {
        let mut turns = FairScheduler::new(1);
        let at = |now_ns: u64| move || now_ns;
        turns.serve(&[], 1000, at(1000), |_, _| Ok(())).unwrap();
        turns.end_turn(1700); // flows that were due were begun
        // The kernel's call took 50,000 ns.
        turns
            .serve(&[event(0)], 51_700, at(51_800), |_, _| Ok(()))
            .unwrap();
        assert_eq!(turns.longest_wait_ns(51_800), 800);
        turns.end_turn(52_000);
        // Ready again: at the earliest since it was served.
        turns
            .serve(&[event(0), event(1)], 52_000, at(52_010), |_, _| Ok(()))
            .unwrap();
        assert_eq!(turns.longest_wait_ns(52_010), 800);
        assert_eq!(turns.longest_turn_ns, 700);
    }
}
