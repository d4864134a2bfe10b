// SPDX-License-Identifier: Apache-2.0
//! Interarrival jitter (RFC 3550, section 6.4.1): how much the spacing of packets changes on their way.
//!
//! J += (|D| - J) / 16 with every packet, where D is the difference of its transit time to that of the packet that
//! came before it. Kept in sixteenths of a nanosecond, as in the RFC's appendix A.8.

/// The jitter of one sender.
#[derive(Clone, Copy, Debug, Default)]
pub struct InterarrivalJitter {
    transit_ns: Option<i64>,
    sixteenths: u64,
    max_sixteenths: u64,
}

impl InterarrivalJitter {
    /// A packet came that was so long under way, by whatever clocks.
    pub fn take(&mut self, transit_ns: i64) {
        if let Some(before_ns) = self.transit_ns.replace(transit_ns) {
            let faded = (self.sixteenths + 8) >> 4;
            self.sixteenths += transit_ns.abs_diff(before_ns);
            self.sixteenths -= faded;
            self.max_sixteenths = self.max_sixteenths.max(self.sixteenths);
        }
    }

    /// Its present value.
    pub fn now_ns(&self) -> u64 {
        self.sixteenths >> 4
    }

    /// The most it ever was.
    pub fn max_ns(&self) -> u64 {
        self.max_sixteenths >> 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_spacing_has_none_whatever_the_delay() {
        let mut jitter = InterarrivalJitter::default();
        for _ in 0..100 {
            jitter.take(250_000_000);
        }
        assert_eq!((jitter.now_ns(), jitter.max_ns()), (0, 0));
    }

    #[test]
    fn it_comes_near_the_mean_change_and_fades_by_a_sixteenth() {
        let mut jitter = InterarrivalJitter::default();
        for packet in 0..1000 {
            jitter.take(if packet % 2 == 0 { 0 } else { 1_000_000 });
        }
        assert!(jitter.now_ns().abs_diff(1_000_000) < 100, "{jitter:?}");
        let before = jitter.now_ns();
        jitter.take(1_000_000);
        assert!(
            jitter.now_ns().abs_diff(before * 15 / 16) < 100,
            "{jitter:?}"
        );
        assert!(jitter.max_ns().abs_diff(1_000_000) < 100);
    }

    #[test]
    fn the_first_change_counts_a_sixteenth() {
        let mut jitter = InterarrivalJitter::default();
        jitter.take(5);
        jitter.take(-1595);
        assert_eq!(jitter.now_ns(), 100);
    }
}
