// SPDX-License-Identifier: Apache-2.0
//! A link's conditions as a function of time: steps, each of which holds until the next.

use crate::range_checks::{check_delay, check_rate, probability};
use crate::{ConfigError, Nanoseconds};

/// Later than every instant.
pub(crate) const NEVER: Nanoseconds = Nanoseconds::MAX;

/// The state of the link from one instant on; absent ones are as configured.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct TraceRow {
    /// Since the start of the trace.
    pub t_ns: Nanoseconds,
    /// 0: the transmitter pauses, packets wait.
    pub rate_bit_s: Option<u64>,
    /// One-way propagation delay of packets that leave the transmitter.
    pub delay_ns: Option<Nanoseconds>,
    /// Probability with which each packet that is sent is lost.
    pub loss: Option<f64>,
    /// The transmitter goes on sending, but all packets are lost.
    #[cfg_attr(feature = "serde", serde(default))]
    pub blocked: bool,
}

/// Rows in order of time, and when they began.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace {
    rows: Vec<TraceRow>,
    start_ns: Option<Nanoseconds>,
}

impl Trace {
    /// The rows must have passed [`check_trace`].
    pub(crate) fn new(rows: Vec<TraceRow>) -> Self {
        Self {
            rows,
            start_ns: None,
        }
    }

    pub(crate) fn rows(&self) -> &[TraceRow] {
        &self.rows
    }

    /// Time 0 is `now`. Until this is called the first row holds.
    pub(crate) fn start(&mut self, now: Nanoseconds) {
        self.start_ns = Some(now);
    }

    /// The row that holds at `now`, and the first instant at which it no longer does. The first row also holds
    /// before its time, the last one for ever. None: there is no trace.
    pub(crate) fn at(&self, now: Nanoseconds) -> (Option<&TraceRow>, Nanoseconds) {
        let Some(start_ns) = self.start_ns else {
            return (self.rows.first(), NEVER);
        };
        let elapsed_ns = now.saturating_sub(start_ns);
        let rows = &self.rows;
        let next = rows.partition_point(|row| row.t_ns <= elapsed_ns).max(1);
        let next_row = rows.get(next);
        let until_ns = next_row.map_or(NEVER, |row| start_ns.saturating_add(row.t_ns));
        (rows.get(next - 1), until_ns)
    }
}

/// Whether rows make a trace.
pub(crate) fn check_trace(rows: &[TraceRow]) -> Result<(), ConfigError> {
    let in_trace = |row: usize, source| ConfigError::TraceRow {
        row,
        source: Box::new(source),
    };
    for (number, row) in rows.iter().enumerate() {
        check_row(row).map_err(|source| in_trace(number, source))?;
    }
    let mut pairs = rows.windows(2);
    match pairs.position(|pair| pair[0].t_ns >= pair[1].t_ns) {
        None => Ok(()),
        Some(index) => Err(in_trace(index + 1, ConfigError::TraceOrder)),
    }
}

fn check_row(row: &TraceRow) -> Result<(), ConfigError> {
    let rate_bit_s = row.rate_bit_s.filter(|&rate_bit_s| rate_bit_s > 0);
    rate_bit_s.map_or(Ok(()), check_rate)?;
    check_delay(row.delay_ns.unwrap_or(0))?;
    probability("loss", row.loss.unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(t_ns: u64) -> TraceRow {
        TraceRow {
            t_ns,
            rate_bit_s: None,
            delay_ns: None,
            loss: None,
            blocked: false,
        }
    }

    #[test]
    fn rows_hold_from_their_time_to_the_next_ones() {
        let mut trace = Trace::new(vec![row(0), row(100), row(250)]);
        let at = |trace: &Trace, now| {
            let (row, until_ns) = trace.at(now);
            (row.map(|row| row.t_ns), until_ns)
        };
        assert_eq!(at(&trace, 5_000), (Some(0), NEVER), "not started");
        trace.start(1_000);
        assert_eq!(at(&trace, 900), (Some(0), 1_100));
        assert_eq!(at(&trace, 1_099), (Some(0), 1_100));
        assert_eq!(at(&trace, 1_100), (Some(100), 1_250));
        assert_eq!(at(&trace, 9_999), (Some(250), NEVER));
        assert_eq!(at(&Trace::default(), 7), (None, NEVER));
    }

    #[test]
    fn the_first_row_holds_before_its_time() {
        let mut trace = Trace::new(vec![row(50), row(100)]);
        trace.start(1_000);
        let (first, until_ns) = trace.at(1_000);
        assert_eq!((first.map(|row| row.t_ns), until_ns), (Some(50), 1_100));
    }

    #[test]
    fn mistakes_name_their_row() {
        let pause = TraceRow {
            rate_bit_s: Some(0),
            ..row(9)
        };
        assert_eq!(check_trace(&[row(0), pause]), Ok(()));
        let lossy = TraceRow {
            loss: Some(1.5),
            ..row(9)
        };
        let mistake = |rows: &[TraceRow]| check_trace(rows).unwrap_err().to_string();
        assert_eq!(
            mistake(&[row(0), lossy]),
            "trace row 1: loss 1.5 is no probability: 0 to 1"
        );
        assert!(mistake(&[row(0), row(9), row(9)]).starts_with("trace row 2: t_ns"));
    }
}
