// SPDX-License-Identifier: Apache-2.0
//! One direction of a satellite link.

use crate::aqm::Aqm;
use crate::link_state::LinkState;
use crate::loss::{Loss, LossPlace};
use crate::propagation::Propagation;
use crate::queue::{LowPriority, Queue, Waiting};
use crate::red::Arrival;
use crate::serialiser::{Position, RateCheck, end_of, work_between, work_of};
use crate::trace::NEVER;
use crate::{
    AqmSettings, ConfigError, Departure, DropCause, Histogram, JitterSettings, LinkCounters,
    LinkSettings, LowPriorityCounters, LowPrioritySettings, Nanoseconds, SplitMix64,
};

/// One direction of a satellite link: queue or two, serialisation, loss, propagation.
///
/// Packets must be enqueued in order of time. The transmitter is served when an arrival or a departure
/// asks for it, at the instants at which it became free and not at those of the calls: when calls come,
/// and how often, changes nothing. A managed queue (`CoDel`) and one of low priority need more: which packet is next depends
/// on those that arrived before, so a link that has them must not be asked for an instant after an arrival that it does
/// not know yet, except by [`Link::pop_due`], which has time for as long as the shortest delay.
#[derive(Debug)]
pub struct Link<P> {
    state: LinkState,
    shortest_delay_ns: Nanoseconds,
    jitter: JitterSettings,
    loss_before: Loss,
    loss_after: Loss,
    queue: Queue<P>,
    low_priority: Option<LowPriority<P>>,
    aqm: Aqm,
    aqm_settings: Option<AqmSettings>,
    aqm_random: SplitMix64,
    sending: Option<Sending<P>>,
    /// When the last packet was sent whole.
    free: Position,
    /// Time without a packet being sent up to the begin of the last one.
    idle_ns: Nanoseconds,
    propagation: Propagation<P>,
    last_arrival_ns: Nanoseconds,
    totals: LinkCounters,
    rate_check: RateCheck,
    sojourn: Histogram,
    queue_peak_bytes: u64,
}

/// The packet being serialised.
#[derive(Debug)]
struct Sending<P> {
    packet: Waiting<P>,
    is_low_priority: bool,
    /// Since when under present conditions, ...
    begin: Position,
    /// ... and the work that was left then.
    work: u128,
    end: Position,
    /// Whether the path was blocked before `begin`.
    blocked: bool,
}

/// The result of [`Link::enqueue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enqueued {
    /// It is in the queue or being sent.
    Accepted,
    /// It is gone.
    Dropped(DropCause),
}

impl<P> Link<P> {
    /// An empty link, idle from `start_ns` on. All that is random is drawn from `random`.
    ///
    /// # Errors
    /// When a setting is out of its range.
    pub fn new(
        settings: &LinkSettings,
        random: SplitMix64,
        start_ns: Nanoseconds,
    ) -> Result<Self, ConfigError> {
        settings.check()?;
        let propagation = settings.propagation();
        let aqm_random = random.fork(2);
        let mut link = Self {
            state: LinkState::new(settings),
            shortest_delay_ns: 0,
            jitter: propagation.jitter,
            loss_before: Loss::new(LossPlace::Before, settings.loss.as_ref(), random.fork(1)),
            loss_after: Loss::new(LossPlace::After, settings.loss.as_ref(), random.fork(3)),
            queue: Queue::new(settings.queue_bytes, settings.queue_packets, start_ns),
            low_priority: settings
                .low_priority
                .map(|low| LowPriority::new(low, start_ns)),
            aqm: Aqm::new(settings.aqm, aqm_random.clone()),
            aqm_settings: settings.aqm,
            aqm_random,
            sending: None,
            free: Position::at(start_ns),
            idle_ns: 0,
            propagation: Propagation::new(&propagation, random),
            last_arrival_ns: start_ns,
            totals: LinkCounters::default(),
            rate_check: RateCheck::default(),
            sojourn: Histogram::default(),
            queue_peak_bytes: 0,
        };
        link.note_shortest_delay();
        Ok(link)
    }

    /// A packet that counts for `bytes` arrives at `now`. An instant before the last arrival is taken
    /// for the last arrival.
    pub fn enqueue(&mut self, now: Nanoseconds, bytes: u32, packet: P) -> Enqueued {
        let now = self.arrive(now, bytes);
        self.queue.forget(now);
        let refused = self.loses_before(now, bytes).or_else(|| {
            if self.aqm_refuses(now, bytes) {
                return Some(DropCause::Aqm);
            }
            (self.must_wait(now) && !self.queue.has_room(bytes)).then_some(DropCause::QueueFull)
        });
        if let Some(cause) = refused {
            return self.drop_arrival(cause, bytes);
        }
        self.queue.push(Waiting {
            arrival_ns: now,
            bytes,
            packet,
        });
        if self.must_wait(now) {
            self.queue_peak_bytes = self.queue_peak_bytes.max(self.queue.bytes());
        }
        self.begin_if_idle()
    }

    /// A packet of low priority arrives: [`Link::enqueue`] into the queue of low priority, if the link has one.
    pub fn enqueue_low_priority(&mut self, now: Nanoseconds, bytes: u32, packet: P) -> Enqueued {
        if !self.has_low_priority() {
            return self.enqueue(now, bytes, packet);
        }
        let now = self.arrive(now, bytes);
        let (lost, must_wait) = (self.loses_before(now, bytes), self.must_wait(now));
        let Some(low) = &mut self.low_priority else {
            unreachable!("it was found above")
        };
        low.totals.arrived.record(bytes);
        low.queue.forget(now);
        let full = must_wait && !low.queue.has_room(bytes);
        if let Some(cause) = lost.or(full.then_some(DropCause::LowPriorityFull)) {
            return self.drop_arrival(cause, bytes);
        }
        low.queue.push(Waiting {
            arrival_ns: now,
            bytes,
            packet,
        });
        if must_wait {
            low.peak_bytes = low.peak_bytes.max(low.queue.bytes());
        }
        self.begin_if_idle()
    }

    /// Serve the transmitter up to an arrival; returns its instant.
    fn arrive(&mut self, now: Nanoseconds, bytes: u32) -> Nanoseconds {
        let now = now.max(self.last_arrival_ns);
        self.last_arrival_ns = now;
        self.totals.arrived.record(bytes);
        self.serve_until(now);
        now
    }

    fn drop_arrival(&mut self, cause: DropCause, bytes: u32) -> Enqueued {
        self.totals.dropped.add(cause, bytes);
        Enqueued::Dropped(cause)
    }

    fn begin_if_idle(&mut self) -> Enqueued {
        if self.sending.is_none() {
            self.begin_next();
        }
        Enqueued::Accepted
    }

    /// When the next packet is to be taken from the link: at this instant the next one leaves, or - when it is not
    /// in propagation yet - can leave at the earliest.
    #[must_use]
    pub fn next_departure(&self) -> Option<Nanoseconds> {
        let first = self.propagation.next_departure();
        let sending = self.sending.as_ref().map(|sending| {
            let end_ns = sending.end.rounded_up();
            end_ns.saturating_add(self.shortest_delay_ns)
        });
        let next = first.into_iter().chain(sending).min();
        next.filter(|&instant| instant != NEVER)
    }

    /// The next packet, if it was due at or before `now`.
    pub fn pop_due(&mut self, now: Nanoseconds) -> Option<Departure<P>> {
        // No earlier than it must be: arrivals before that are then known.
        if let Some(needed_ns) = now.checked_sub(self.shortest_delay_ns) {
            self.serve_until(needed_ns);
        }
        let departure = self.propagation.pop_due(now)?;
        self.totals.departed.record(departure.bytes);
        Some(departure)
    }

    /// Begin the trace of conditions at `now`.
    ///
    /// # Errors
    /// When there is none.
    pub fn start_trace(&mut self, now: Nanoseconds) -> Result<(), ConfigError> {
        self.under_new_state(now, |link, now| link.state.start_trace(now))
    }

    /// Replace the settings at `now`, at once for packets that are waiting, being sent or arriving. Packets in propagation
    /// keep their arrival times; later ones do not overtake them unless reordering is enabled.
    ///
    /// Packets in queues stay, also those for which they are now too small. If there is no queue of low priority any more,
    /// its packets wait behind the others. Another model of loss, AQM or trace begins at its beginning.
    ///
    /// # Errors
    /// When a setting is out of its range; everything is then as before.
    pub fn change(&mut self, now: Nanoseconds, settings: &LinkSettings) -> Result<(), ConfigError> {
        settings.check()?;
        self.under_new_state(now, |link, now| {
            link.state.change(settings);
            link.loss_before.change(settings.loss.as_ref());
            link.loss_after.change(settings.loss.as_ref());
            link.queue
                .resize(settings.queue_bytes, settings.queue_packets);
            link.change_low_priority(settings.low_priority, now);
            if link.aqm_settings != settings.aqm {
                link.aqm_settings = settings.aqm;
                link.aqm = Aqm::new(settings.aqm, link.aqm_random.fork(now));
            }
            let propagation = settings.propagation();
            link.jitter = propagation.jitter;
            link.propagation.change(&propagation);
            link.note_shortest_delay();
            Ok(())
        })
    }

    /// Packets and bytes since the start.
    #[must_use]
    pub fn totals(&self) -> LinkCounters {
        self.totals
    }

    /// An arrival before this instant is taken for one at it: that of the last arrival or change.
    #[must_use]
    pub fn last_arrival_ns(&self) -> Nanoseconds {
        self.last_arrival_ns
    }

    /// Packets accepted and not yet gone: waiting, being serialised or under way.
    #[must_use]
    pub fn held_packets(&self) -> u64 {
        let low_priority = self.low_priority.as_ref().map_or(0, |low| low.queue.len());
        let waiting = self.queue.len() + low_priority;
        waiting as u64 + u64::from(self.sending.is_some()) + self.propagation.len()
    }

    /// Whether packets of low priority have a queue of their own.
    #[must_use]
    pub fn has_low_priority(&self) -> bool {
        self.low_priority.as_ref().is_some_and(|low| low.is_open)
    }

    /// Packets of low priority since the start; None: they never had a queue of their own.
    #[must_use]
    pub fn low_priority_totals(&self) -> Option<LowPriorityCounters> {
        self.low_priority.as_ref().map(|low| low.totals)
    }

    /// Bytes waiting in the queue of low priority at `now`; 0 if there is none.
    pub fn low_priority_queue_bytes(&mut self, now: Nanoseconds) -> u64 {
        self.serve_until(now);
        let low_priority = self.low_priority.as_ref();
        low_priority.map_or(0, |low| low.queue.bytes_at(now))
    }

    /// [`Link::take_queue_peak_bytes`] of the queue of low priority; 0 if there is none.
    pub fn take_low_priority_queue_peak_bytes(&mut self, now: Nanoseconds) -> u64 {
        let present_bytes = self.low_priority_queue_bytes(now);
        let low_priority = self.low_priority.as_mut();
        low_priority.map_or(0, |low| {
            std::mem::replace(&mut low.peak_bytes, present_bytes)
        })
    }

    /// [`Link::take_sojourn`] of the packets of low priority, if they have a queue of their own.
    pub fn take_low_priority_sojourn(&mut self) -> Histogram {
        let low_priority = self.low_priority.as_mut();
        low_priority.map_or_else(Histogram::default, |low| std::mem::take(&mut low.sojourn))
    }

    /// Bytes waiting in the main queue at `now`.
    pub fn queue_bytes(&mut self, now: Nanoseconds) -> u64 {
        self.serve_until(now);
        self.queue.bytes_at(now)
    }

    /// The most bytes that waited in the main queue at once from the last call of this (or the start) to `now`.
    pub fn take_queue_peak_bytes(&mut self, now: Nanoseconds) -> u64 {
        let present_bytes = self.queue_bytes(now);
        std::mem::replace(&mut self.queue_peak_bytes, present_bytes)
    }

    /// Time without a packet being serialised, from the start to `now`.
    pub fn idle_ns(&mut self, now: Nanoseconds) -> Nanoseconds {
        self.serve_until(now);
        match self.sending {
            Some(_) => self.idle_ns,
            None => self.idle_ns + now.saturating_sub(self.free.rounded_up()),
        }
    }

    /// Time in the queue and being serialised, of all packets sent since the last call, except those of a queue of low
    /// priority.
    pub fn take_sojourn(&mut self) -> Histogram {
        std::mem::take(&mut self.sojourn)
    }

    /// Windows of 100 ms since the start in which more was sent than the rate allows.
    #[must_use]
    pub fn windows_over_rate(&self) -> u64 {
        self.rate_check.over_rate(&self.state)
    }

    /// The least by which any packet will be delayed in propagation.
    #[must_use]
    pub fn shortest_delay_ns(&self) -> Nanoseconds {
        self.shortest_delay_ns
    }

    fn change_low_priority(&mut self, settings: Option<LowPrioritySettings>, now: Nanoseconds) {
        match (&mut self.low_priority, settings) {
            (Some(low), Some(new)) => low.queue.resize(new.queue_bytes, new.queue_packets),
            (Some(low), None) => self.queue.append(&mut low.queue),
            (low, new) => *low = new.map(|new| LowPriority::new(new, now)),
        }
        if let Some(low) = &mut self.low_priority {
            low.is_open = settings.is_some();
        }
        self.queue_peak_bytes = self.queue_peak_bytes.max(self.queue.bytes_at(now));
    }

    fn note_shortest_delay(&mut self) {
        let delay_ns = self.state.shortest_delay_ns();
        self.shortest_delay_ns = delay_ns.saturating_sub(self.jitter.earliest_ns());
    }

    /// Whether noise before the queue loses the packet that arrives.
    fn loses_before(&mut self, now: Nanoseconds, bytes: u32) -> Option<DropCause> {
        let lossy = self.loss_before.is_set() && self.state.loss(now).is_none();
        (lossy && self.loss_before.loses(None, bytes)).then_some(DropCause::Loss)
    }

    /// Whether the manager of the main queue refuses the packet that arrives.
    fn aqm_refuses(&mut self, now: Nanoseconds, bytes: u32) -> bool {
        let (queue, state) = (&self.queue, &self.state);
        let arrival = || Arrival {
            queue_bytes: queue.bytes(),
            empty_ns: queue
                .empty_since_ns()
                .map_or(0, |since_ns| now.saturating_sub(since_ns)),
            sending_ns: end_of(state, Position::at(now), work_of(bytes)).rounded_up() - now,
        };
        self.aqm.refuses(arrival)
    }

    /// Whether a packet that arrives at `now` is not sent at once.
    fn must_wait(&self, now: Nanoseconds) -> bool {
        self.sending.is_some() || self.free.rounded_up() > now
    }

    /// Finish the packets sent by `now` and begin the next one.
    fn serve_until(&mut self, now: Nanoseconds) {
        while let Some(sent) = self
            .sending
            .take_if(|sending| sending.end.rounded_up() <= now)
        {
            self.finish(sent);
            self.begin_next();
        }
    }

    fn begin_next(&mut self) {
        let free_ns = self.free.rounded_up();
        let Some((begin_ns, packet, is_low_priority)) = self.take_next(free_ns) else {
            return;
        };
        // After a packet that it waited for it begins at the fraction of a nanosecond at which that ended.
        let begin = if packet.arrival_ns >= free_ns {
            Position::at(begin_ns)
        } else {
            self.free
        };
        self.idle_ns += begin_ns - free_ns;
        let work = work_of(packet.bytes);
        self.sending = Some(Sending {
            packet,
            is_low_priority,
            begin,
            work,
            end: end_of(&self.state, begin, work),
            blocked: false,
        });
    }

    /// The packet to be sent next, and the instant at which it is taken: from the queue of low priority only if no other
    /// packet waits by then.
    fn take_next(&mut self, free_ns: Nanoseconds) -> Option<(Nanoseconds, Waiting<P>, bool)> {
        let low_priority = self.low_priority.as_mut();
        if let Some(first_ns) = self.queue.first_arrival_ns() {
            let is_first = low_priority.is_none_or(|low| !low.precedes(free_ns, first_ns));
            let dropped = &mut self.totals.dropped;
            let drop = |packet: &Waiting<P>| dropped.add(DropCause::Aqm, packet.bytes);
            if is_first {
                if let Some((begin_ns, packet)) = self.aqm.take(&mut self.queue, free_ns, drop) {
                    return Some((begin_ns, packet, false));
                }
            }
        }
        let (begin_ns, packet) = self.low_priority.as_mut()?.queue.pop(free_ns)?;
        Some((begin_ns, packet, true))
    }

    fn finish(&mut self, sent: Sending<P>) {
        let Sending { packet, end, .. } = sent;
        let end_ns = end.rounded_up();
        self.free = end;
        self.rate_check.record(&self.state, end_ns, packet.bytes);
        let sojourn_ns = end_ns - packet.arrival_ns;
        match &mut self.low_priority {
            Some(low) if sent.is_low_priority => {
                low.sojourn.record(sojourn_ns);
                low.totals.sent.record(packet.bytes);
            }
            _ => self.sojourn.record(sojourn_ns),
        }
        // Decided for every packet that is sent, so that blockages do not move the fates of later ones.
        let traced_loss = self.state.loss(end_ns);
        let lost = self.loss_after.loses(traced_loss, packet.bytes);
        let begin_ns = sent.begin.rounded_down();
        let blocked = sent.blocked || self.state.is_blocked(begin_ns, end_ns);
        if blocked || lost {
            let cause = if blocked {
                DropCause::Blocked
            } else {
                DropCause::Loss
            };
            self.totals.dropped.add(cause, packet.bytes);
            self.totals.lost_after.record(packet.bytes);
            return;
        }
        let delay_ns = self.state.delay_ns(end_ns);
        self.propagation
            .push(end_ns, delay_ns, packet.bytes, packet.packet);
    }

    /// Let `change` take effect at `now`: what is being sent has been sent up to then under the conditions before,
    /// and the rest is sent under those after.
    fn under_new_state(
        &mut self,
        now: Nanoseconds,
        change: impl FnOnce(&mut Self, Nanoseconds) -> Result<(), ConfigError>,
    ) -> Result<(), ConfigError> {
        self.serve_until(now);
        // Not before what has been computed under the conditions so far.
        let now = now.max(self.last_arrival_ns).max(self.free.rounded_up());
        self.last_arrival_ns = now;
        self.rate_check.before_change(&self.state, now);
        if let Some(sending) = &mut self.sending {
            let begin_ns = sending.begin.rounded_down();
            sending.work -= work_between(&self.state, sending.begin, now);
            sending.blocked |= self.state.is_blocked(begin_ns, now);
            sending.begin = Position::at(now);
        }
        let result = change(self, now);
        if let Some(sending) = &mut self.sending {
            sending.end = end_of(&self.state, sending.begin, sending.work);
        }
        result
    }
}
