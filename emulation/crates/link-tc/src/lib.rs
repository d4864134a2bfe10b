// SPDX-License-Identifier: Apache-2.0
//! `atoll-host tc`: a link or a delay box made of the kernel's own queueing disciplines.
//!
//! The settings come ready for `ip -batch` and `tc -batch` from the planner, together with the output
//! expected of `tc qdisc show` and the places of the counters. This program applies them, compares,
//! reports as the link engine does, and undoes them.
//!
//! ```text
//! setup     tools: ip, tc         read back with `tc qdisc show` ──> expectation
//! counters  rtnetlink dumps       statistics ──> counters, marks ──> standard output
//! ```
//!
//! The kernel knows less than the engine: neither how late a packet left nor how long each one waited. Its
//! queue is looked at every 20 ms, so its maximum and its sojourn times are those of these looks.

mod config;
mod counters;
mod error;
mod report;
mod rtnetlink;
mod setup;
#[cfg(test)]
mod tests;

use atoll_job::clock::real_time_ns;
use atoll_job::{Event, Requests};
use atoll_link_report::{Line, LinkAnswer};
use atoll_netio::interface::Interface;
use config::{Config, Request};
use counters::Counters;
use error::TcError;
use report::{ENGINE_ONLY, Figures, Measurement, print};
use rtnetlink::Kernel;
use std::time::{Duration, Instant};

/// Between two lines of a link's counters, which show how its queue comes and goes.
const LINK_LINE: Duration = Duration::from_millis(100);
/// Readings of a link's queues for each line: one every 20 ms.
const LOOKS_PER_LINE: u32 = 5;
/// Between two lines of a delay box's counters, which are sums and nothing else.
const DELAY_LINE: Duration = Duration::from_secs(1);

/// Reads its configuration from the first line of standard input; returns when that ends or on SIGTERM.
///
/// # Errors
/// A message for the user when the configuration (an [`std::io::Error`] of kind `InvalidInput`) or the
/// machine does not allow it, when a setting did not take, or an interface goes away.
pub fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut input = Requests::start()?;
    let config = Config::parse(&input.first_line()?)?;
    // They must be up, carry whole packets, and hand them over one by one.
    for name in &config.interfaces {
        Interface::find_usable(name, config.mtu).map_err(atoll_job::bad_configuration)?;
    }
    setup::undo(&config)?;
    let outcome = setup::apply(&config).and_then(|()| serve(&config, &mut input));
    let undone = setup::undo(&config);
    if let (Err(_), Err(left)) = (&outcome, &undone) {
        atoll_job::log_line(&left.to_string());
    }
    Ok(outcome.and(undone)?)
}

fn serve(config: &Config, input: &mut Requests) -> Result<(), TcError> {
    let mut kernel = Kernel::open()?;
    let mut counters = Counters::new(config)?;
    counters.sample(&mut kernel)?;
    print(&Line::Ready)?;
    let (line, looks) = match config.link {
        Some(_) => (LINK_LINE, LOOKS_PER_LINE),
        None => (DELAY_LINE, 1),
    };
    let mut looked = 0;
    let mut next = Instant::now() + line / looks;
    loop {
        let now = Instant::now();
        match input.wait(next.saturating_duration_since(now))? {
            Some(Event::Ended) => break,
            Some(Event::Request(Ok(request))) => {
                print(&answer(request, &mut kernel, &mut counters)?)?;
            }
            Some(Event::Request(Err(refusal))) => atoll_job::print(&refusal)?,
            None => {
                looked = (looked + 1) % looks;
                if looked == 0 {
                    let counters = counters.interval(&mut kernel)?; // which looks, too
                    let t_ns = real_time_ns();
                    print(&Line::Counters { t_ns, counters })?;
                } else {
                    counters.sample(&mut kernel)?;
                }
                // A reader or a processor that was away for a while owes no looks.
                next = (next + line / looks).max(now);
            }
        }
    }
    let measurement = counters.measurement(&mut kernel)?;
    let t_ns = real_time_ns();
    print(&Line::Done { t_ns, measurement })
}

fn answer(
    request: Request,
    kernel: &mut Kernel,
    counters: &mut Counters,
) -> Result<Line<Figures, Measurement>, TcError> {
    Ok(match request {
        Request::Mark { id } => {
            let measurement = counters.measurement(kernel)?;
            let t_ns = real_time_ns();
            Line::Mark {
                id,
                t_ns,
                measurement,
            }
        }
        Request::Set(change) => {
            let done = setup::change(&change).and_then(|()| counters.change(&change.link));
            Line::Set(LinkAnswer::new(change.id, real_time_ns(), done))
        }
        Request::TraceStart { id } => {
            Line::TraceStart(LinkAnswer::new(id, real_time_ns(), Err(ENGINE_ONLY)))
        }
    })
}
