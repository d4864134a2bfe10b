// SPDX-License-Identifier: Apache-2.0
//! Whose turn it is: every ready channel, once, before any channel again.
//!
//! A client that goes through its sockets in the order of their descriptors, and starts over when one was served,
//! starves channels above some twenty: finished flows free low descriptors, which new flows take at once. Here
//! one look at the kernel reports *every* channel that is ready, in the order in which they became so, and each
//! gets one service of bounded size before the next look. How long a channel waits is bounded by the
//! number of channels, whatever its descriptor. (An open loop's channel has a service for each of its flows.)
//!
//! The figure that shows it is Jain's index J = (sum x)^2 / (n * sum x^2) over the channels that ever were ready,
//! where x is a channel's share of turns: the turns in which it was served, divided by the turns that found it
//! ready. Dividing by readiness takes the demand out, which differs from channel to channel by decades under
//! heavy-tailed flow sizes. J is 1 when all are treated alike and m / n when m of n are served and the others
//! starve. Source: Jain, Chiu, Hawe, DEC TR-301, 1984.

use crate::failure::Failure;
use rustix::event::epoll::{Event, EventFlags};

/// By what the kernel names a flow's socket: its channel, and its place among the flows in progress.
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

/// Counts of one channel.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    ready: u64,
    served: u64,
}

/// The turns of a number of channels.
#[derive(Debug)]
pub struct Turns {
    counts: Vec<Count>,
}

impl Turns {
    /// For channels 0 to `channels` - 1.
    pub fn new(channels: usize) -> Self {
        Self {
            counts: vec![Count::default(); channels],
        }
    }

    /// One turn: `serve` every flow of `ready` once.
    ///
    /// # Errors
    /// The first of `serve`, which ends the turn.
    pub fn take(
        &mut self,
        ready: &[Event],
        mut serve: impl FnMut(Token, EventFlags) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.saw(ready);
        for event in ready {
            let token = Token(event.data.u64());
            serve(token, event.flags)?;
            self.counts[token.channel()].served += 1;
        }
        Ok(())
    }

    fn saw(&mut self, ready: &[Event]) {
        for event in ready {
            self.counts[Token(event.data.u64()).channel()].ready += 1;
        }
    }

    /// Jain's index over the channels' shares of turns; 1 if none was ever ready.
    pub fn fairness(&self) -> f64 {
        let shares = self
            .counts
            .iter()
            .filter(|count| count.ready > 0)
            .map(|count| count.served as f64 / count.ready as f64);
        let (number, sum, squares) = shares.fold((0.0, 0.0, 0.0), |(number, sum, squares), x| {
            (number + 1.0, sum + x, squares + x * x)
        });
        if squares > 0.0 {
            sum * sum / (number * squares)
        } else {
            1.0
        }
    }

    /// How many channels were served at all.
    pub fn served_channels(&self) -> usize {
        self.counts.iter().filter(|count| count.served > 0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Events;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    const CHANNELS: usize = 40;
    const SERVICES: u64 = 400;
    const BYTES_PER_SERVICE: usize = 64;

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
    fn every_ready_channel_gets_its_turn() {
        let (mut events, _senders, receivers) = contended();
        let mut turns = Turns::new(CHANNELS);
        let mut ready = Vec::with_capacity(CHANNELS + 8);
        for _ in 0..SERVICES / CHANNELS as u64 {
            events.wait(&mut ready, None).unwrap();
            turns
                .take(&ready, |token, _| {
                    read_some(&receivers[token.channel()]);
                    Ok(())
                })
                .unwrap();
        }
        assert_eq!(turns.served_channels(), CHANNELS);
        assert!(turns.fairness() > 0.999, "{}", turns.fairness());
        assert!(
            turns
                .counts
                .iter()
                .all(|count| count.served == SERVICES / CHANNELS as u64)
        );
    }

    #[test]
    fn descriptor_order_starves_and_the_figure_shows_it() {
        let (mut events, _senders, receivers) = contended();
        let mut turns = Turns::new(CHANNELS);
        let mut ready = Vec::with_capacity(CHANNELS + 8);
        for _ in 0..SERVICES {
            events.wait(&mut ready, None).unwrap();
            turns.saw(&ready);
            let lowest = ready
                .iter()
                .map(|event| Token(event.data.u64()).channel())
                .min()
                .unwrap();
            read_some(&receivers[lowest]);
            turns.counts[lowest].served += 1;
        }
        assert_eq!(turns.served_channels(), 1);
        assert!(turns.fairness() < 0.05, "{}", turns.fairness());
    }

    #[test]
    fn demand_does_not_count_as_unfairness() {
        let counts = vec![
            Count {
                ready: 1000,
                served: 1000,
            },
            Count {
                ready: 3,
                served: 3,
            },
            Count::default(),
        ];
        assert!((Turns { counts }.fairness() - 1.0).abs() < 1e-12);
        assert!((Turns::new(3).fairness() - 1.0).abs() < 1e-12);
    }
}
