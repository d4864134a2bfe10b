// SPDX-License-Identifier: Apache-2.0
//! What tunnels over the same link, in the same direction, have in common: its queue, and the repair packets that wait.

use crate::config::{Config, Mac};
use crate::counters::Sums;
use crate::feedback::ReportedWait;
use crate::scheduler::Scheduler;
use atoll_frame_engine::{FrameOutput, Outgoing};
use atoll_headers::ETHERNET_BYTES;
use atoll_redundancy::{QueueingDelay, Report};
use atoll_rlnc::Header;
use std::collections::BTreeMap;

/// A repair packet in its frame, the index of its tunnel, and the port by which it is to leave.
#[derive(Debug)]
pub(crate) struct WaitingRepair {
    pub(crate) tunnel: usize,
    pub(crate) port: usize,
    pub(crate) frame: Vec<u8>,
    pub(crate) header: Header,
}

impl WaitingRepair {
    /// Whether the other coder has all packets of which it is made, by its report.
    fn is_useless(&self, report: &Report) -> bool {
        match self.header {
            Header::Repair {
                generation, count, ..
            } => report.rank(generation).is_some_and(|rank| rank >= count),
            Header::WindowRepair { first, count, .. } => {
                let end = first.wrapping_add(count.into());
                report.first_generation.wrapping_sub(end) < u32::MAX / 2 // by serial numbers (RFC 1982)
            }
            _ => false,
        }
    }
}

/// The way of tunnels to a link. Each tunnel has one of its own if its repair packets do not wait for the link's queue.
#[derive(Debug)]
pub(crate) struct Outlet {
    pub(crate) scheduler: Scheduler<WaitingRepair>,
    /// Until when a report of any tunnel is fresh.
    fresh_until_ns: u64,
    /// By the address of the other coder, with whose clock it is compared: a tunnel that begins while packets wait does
    /// not know the delay without a queue.
    delays: BTreeMap<Mac, QueueingDelay>,
}

impl Outlet {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            scheduler: Scheduler::new(config.release(), config.stale_ns),
            fresh_until_ns: 0,
            delays: BTreeMap::new(),
        }
    }

    /// The queueing delays towards the other coder with this address.
    pub(crate) fn delay(&mut self, peer: Mac) -> &mut QueueingDelay {
        self.delays.entry(peer).or_default()
    }

    /// A report came that is fresh until this instant, and may say how long a packet waited.
    pub(crate) fn learn(&mut self, fresh_until_ns: u64, waited: Option<ReportedWait>) {
        self.fresh_until_ns = self.fresh_until_ns.max(fresh_until_ns);
        if let Some(ReportedWait { sent_ns, waited_ns }) = waited {
            self.scheduler.learn(sent_ns, waited_ns);
        }
    }

    /// Do without reports, if no tunnel has a fresh one.
    pub(crate) fn forget_old_reports(&mut self, now_ns: u64) {
        if now_ns >= self.fresh_until_ns {
            self.scheduler.forget_reports();
        }
    }

    /// Drop the repair packets of a tunnel that its report makes useless: how many.
    pub(crate) fn discard(&mut self, tunnel: usize, report: &Report) -> u64 {
        self.scheduler
            .discard(|waiting| waiting.tunnel == tunnel && waiting.is_useless(report))
    }
}

/// Where a tunnel's packets leave and are counted.
pub(crate) struct Exit<'a> {
    pub(crate) outlet: &'a mut Outlet,
    pub(crate) out: &'a mut FrameOutput<()>,
    pub(crate) sums: &'a mut Sums,
}

impl Exit<'_> {
    /// Send a frame that carries no repair packet.
    pub(crate) fn send(&mut self, now_ns: u64, port: usize, frame: Vec<u8>) {
        let bytes = (frame.len() - ETHERNET_BYTES) as u32;
        self.outlet.scheduler.sent(now_ns, bytes);
        self.out.send(outgoing(port, now_ns, frame));
    }
}

pub(crate) fn outgoing(port: usize, scheduled_ns: u64, frame: Vec<u8>) -> Outgoing<()> {
    Outgoing {
        port,
        scheduled_ns,
        frame,
        tag: (),
    }
}
