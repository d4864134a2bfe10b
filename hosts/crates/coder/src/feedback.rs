// SPDX-License-Identifier: Apache-2.0
//! Both ends of the reports between coders: when a decoder sends one, and what an encoder learns of it.

use crate::config::{AdaptiveConfig, FeedbackConfig};
use crate::stream::Shape;
use atoll_redundancy::{AdaptiveRedundancy, NUMBER_MODULUS, QueueingDelay, Report, Target};

/// A number identifies a packet if all packets of this time have different ones.
const UNIQUE_FOR_NS: u64 = 2_000_000_000;

/// When a decoder sends reports.
#[derive(Debug)]
pub(crate) struct ReportSender {
    config: FeedbackConfig,
    /// The number of the next report.
    pub(crate) number: u32,
    sent_ns: Option<u64>,
    arrived_ns: u64,
    /// Packets since the last report.
    unreported: u32,
}

impl ReportSender {
    pub(crate) fn new(config: FeedbackConfig) -> Self {
        Self {
            config,
            number: 0,
            sent_ns: None,
            arrived_ns: 0,
            unreported: 0,
        }
    }

    /// A packet arrived.
    pub(crate) fn arrived(&mut self, now_ns: u64) {
        self.arrived_ns = self.arrived_ns.max(now_ns);
        self.unreported = self.unreported.saturating_add(1);
    }

    /// When the next report is due; `None`: there is nothing to report.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let are_enough = (self.config.packets).is_some_and(|packets| self.unreported >= packets);
        let due_ns = match self.sent_ns {
            Some(sent_ns) if !are_enough => sent_ns.saturating_add(self.config.every_ns),
            _ => self.arrived_ns,
        };
        (self.unreported > 0).then_some(due_ns)
    }

    /// A report leaves: its number.
    pub(crate) fn sent(&mut self, now_ns: u64) -> u32 {
        let number = self.number;
        self.number = number.wrapping_add(1);
        self.sent_ns = Some(now_ns);
        self.unreported = 0;
        number
    }
}

/// How long a source packet waited, by a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReportedWait {
    pub(crate) sent_ns: u64,
    pub(crate) waited_ns: u64,
}

/// What reports say to an encoder.
#[derive(Debug, Default)]
pub(crate) struct ReportReceiver {
    timeout_ns: u64,
    adaptive: Option<AdaptiveRedundancy>,
    /// When the packets were sent that were sent last, by number.
    sent_ns: Vec<u64>,
    next: u16,
    last_report: Option<(u32, u64)>,
    pub(crate) queueing_ns: u64,
    pub(crate) rtt_ns: u64,
    pub(crate) reports: u64,
}

impl ReportReceiver {
    pub(crate) fn new(
        config: FeedbackConfig,
        adaptive: Option<AdaptiveConfig>,
        shape: &Shape,
    ) -> Self {
        let adapted = adaptive.map(|adaptive| {
            AdaptiveRedundancy::new(Target {
                size: shape.size,
                depth: shape.interleave as u16,
                most: adaptive.most,
                fallback: shape.repairs,
                residual: adaptive.residual_loss,
                timeout_ns: config.timeout_ns,
            })
        });
        Self {
            timeout_ns: config.timeout_ns,
            adaptive: adapted,
            ..Self::default()
        }
    }

    /// A source packet leaves: its number.
    pub(crate) fn sent(&mut self, now_ns: u64) -> u16 {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.sent(now_ns);
        }
        let number = self.next;
        self.next = (number + 1) % NUMBER_MODULUS;
        match self.sent_ns.get_mut(usize::from(number)) {
            Some(sent_ns) => *sent_ns = now_ns,
            None => self.sent_ns.push(now_ns),
        }
        number
    }

    /// Take a report: how long its newest packet waited. `None` if the report is no later than the last one, or does not
    /// say. `delay`: of all packets on this way.
    pub(crate) fn learn(
        &mut self,
        now_ns: u64,
        report: &Report,
        delay: &mut QueueingDelay,
    ) -> Option<ReportedWait> {
        if (self.last_report).is_some_and(|(number, _)| !report.is_after(number)) {
            return None;
        }
        self.last_report = Some((report.number, now_ns));
        self.reports += 1;
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.learn(now_ns, report.losses);
        }
        let sent_ns = self.sent_at_ns(now_ns, report.newest)?;
        let held_ns = 1000 * u64::from(report.held_us);
        self.rtt_ns = now_ns.saturating_sub(sent_ns).saturating_sub(held_ns);
        self.queueing_ns = delay.of(now_ns, sent_ns, report.arrived_ns);
        Some(ReportedWait {
            sent_ns,
            waited_ns: self.queueing_ns,
        })
    }

    /// The other coder begins again: its reports are numbered, and count, from 0.
    pub(crate) fn restart(&mut self) {
        self.last_report = None;
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.restart();
        }
    }

    /// Until when the last report is fresh; 0: there was none.
    pub(crate) fn fresh_until_ns(&self) -> u64 {
        self.last_report
            .map_or(0, |(_, at_ns)| at_ns.saturating_add(self.timeout_ns))
    }

    /// Repair packets of a generation, if they are adapted.
    pub(crate) fn repairs(&mut self, now_ns: u64) -> Option<u16> {
        Some(self.adaptive.as_mut()?.repairs(now_ns))
    }

    /// What is adapted, if anything.
    pub(crate) fn adaptive(&self) -> Option<&AdaptiveRedundancy> {
        self.adaptive.as_ref()
    }

    /// When the packet of this number was sent; `None` if it may be another one of the same number.
    fn sent_at_ns(&self, now_ns: u64, number: u16) -> Option<u64> {
        if self.sent_ns.len() == usize::from(NUMBER_MODULUS) {
            let oldest_ns = self.sent_ns[usize::from(self.next)];
            if now_ns.saturating_sub(oldest_ns) < UNIQUE_FOR_NS {
                return None;
            }
        }
        self.sent_ns.get(usize::from(number)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const CONFIG: FeedbackConfig = FeedbackConfig {
        every_ns: 100 * MS,
        packets: Some(50),
        timeout_ns: 3000 * MS,
    };
    const SHAPE: Shape = Shape {
        size: 30,
        repairs: 3,
        interleave: 1,
        interspersed: false,
        flush_ns: 100 * MS,
    };

    #[test]
    fn reports_are_sent_after_time_or_packets_if_there_is_news() {
        let mut sender = ReportSender::new(CONFIG);
        assert_eq!(sender.due_ns(), None);
        sender.arrived(5 * MS);
        assert_eq!(sender.due_ns(), Some(5 * MS), "the first one at once");
        assert_eq!((sender.sent(5 * MS), sender.due_ns()), (0, None));
        sender.arrived(6 * MS);
        assert_eq!(sender.due_ns(), Some(105 * MS));
        (0..49).for_each(|_| sender.arrived(7 * MS));
        assert_eq!((sender.due_ns(), sender.number), (Some(7 * MS), 1));
    }

    #[test]
    fn reports_tell_how_long_packets_waited() {
        let mut receiver = ReportReceiver::new(CONFIG, None, &SHAPE);
        let offset = 1 << 40;
        let report = |number, newest, arrived_ns| Report {
            number,
            newest: u16::try_from(newest).unwrap(),
            arrived_ns: offset + arrived_ns,
            held_us: 2000,
            ..Report::default()
        };
        for number in 0..100 {
            assert_eq!(receiver.sent(number * 10 * MS), number as u16);
        }
        let mut delay = QueueingDelay::default();
        let mut waited = |receiver: &mut ReportReceiver, now_ns, report| {
            let found = receiver.learn(now_ns, &report, &mut delay)?;
            Some((found.sent_ns / MS, found.waited_ns / MS))
        };
        let first = waited(&mut receiver, 400 * MS, report(1, 5, 300 * MS));
        assert_eq!(first, Some((50, 0)));
        assert_eq!(receiver.rtt_ns, 348 * MS);
        let second = waited(&mut receiver, 410 * MS, report(2, 6, 340 * MS));
        assert_eq!(second, Some((60, 30)));
        let again = waited(&mut receiver, 420 * MS, report(2, 7, 900 * MS));
        assert_eq!(again, None, "no news");
        assert_eq!((receiver.queueing_ns, receiver.reports), (30 * MS, 2));
        assert_eq!(receiver.fresh_until_ns(), 3410 * MS);
    }

    #[test]
    fn packets_with_the_same_number_are_not_mistaken_for_each_other() {
        let mut receiver = ReportReceiver::new(CONFIG, None, &SHAPE);
        for number in 0..10_000 {
            receiver.sent(number * MS / 10);
        }
        let report = Report {
            number: 1,
            newest: 7,
            ..Report::default()
        };
        assert_eq!(
            receiver.learn(1000 * MS, &report, &mut QueueingDelay::default()),
            None,
            "8192 packets in 819 ms"
        );
        assert_eq!(receiver.reports, 1);
    }

    proptest! {
        #[test]
        fn no_reports_make_it_panic(reports: Vec<(u32, u16, u64, u32, u64)>) {
            let adaptive = AdaptiveConfig { most: 15, residual_loss: 0.001 };
            let mut receiver = ReportReceiver::new(CONFIG, Some(adaptive), &SHAPE);
            let mut delay = QueueingDelay::default();
            for (number, newest, arrived_ns, held_us, now_ns) in reports {
                receiver.sent(now_ns);
                let report = Report { number, newest, arrived_ns, held_us, ..Report::default() };
                receiver.learn(now_ns, &report, &mut delay);
                prop_assert!(receiver.repairs(now_ns).is_some_and(|repairs| repairs <= 15));
            }
        }
    }
}
