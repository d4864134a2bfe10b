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

mod attributes;
mod config;
#[cfg(test)]
mod contract;
mod counters;
mod error;
mod readback;
mod report;
mod request;
mod rtnetlink;
mod setup;

use atoll_job::{Event, Requests};
use atoll_link_report::Op;
use config::{Config, Counted};
use counters::Counters;
use error::{BadConfiguration, TcError};
use report::{ENGINE_ONLY, Reporter};
use request::Request;
use rtnetlink::Kernel;
use std::io;
use std::time::{Duration, Instant};

/// Between two lines of a link's counters, which show how its queue comes and goes.
const LINK_LINE: Duration = Duration::from_millis(100);
/// So often a link's queues are looked at for each line: every 20 ms.
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
    let config = Config::parse(&input.first_line()?).map_err(io::Error::from)?;
    setup::check_interfaces(&config.settings)
        .map_err(BadConfiguration::from)
        .map_err(io::Error::from)?;
    setup::undo(&config.settings)?;
    let outcome = setup::apply(&config.settings).and_then(|()| serve(&config.counted, &mut input));
    let undone = setup::undo(&config.settings);
    if let (Err(_), Err(left)) = (&outcome, &undone) {
        atoll_job::log_line(&left.to_string());
    }
    Ok(outcome.and(undone)?)
}

fn serve(counted: &Counted, input: &mut Requests) -> Result<(), TcError> {
    let mut kernel = Kernel::open()?;
    let mut counters = Counters::new(counted)?;
    let mut reporter = Reporter::new(io::stdout());
    counters.sample(&mut kernel)?;
    reporter.ready()?;
    let (line, looks) = match counted {
        Counted::Link(_) => (LINK_LINE, LOOKS_PER_LINE),
        Counted::Delay(_) => (DELAY_LINE, 1),
    };
    let mut looked = 0;
    let mut next = Instant::now() + line / looks;
    loop {
        let now = Instant::now();
        match input.wait(next.saturating_duration_since(now))? {
            Some(Event::Ended) => break,
            Some(Event::Request(Ok(request))) => {
                answer(request, &mut kernel, &mut counters, &mut reporter)?;
            }
            Some(Event::Request(Err(refusal))) => reporter.refuse(&refusal)?,
            None => {
                looked = (looked + 1) % looks;
                if looked == 0 {
                    reporter.counters(counters.interval(&mut kernel)?)?; // which looks, too
                } else {
                    counters.sample(&mut kernel)?;
                }
                // A reader or a processor that was away for a while owes no looks.
                next = (next + line / looks).max(now);
            }
        }
    }
    reporter.done(counters.measurement(&mut kernel)?)
}

fn answer(
    request: Request,
    kernel: &mut Kernel,
    counters: &mut Counters,
    reporter: &mut Reporter<impl io::Write>,
) -> Result<(), TcError> {
    match request {
        Request::Mark { id } => reporter.mark(id, counters.measurement(kernel)?),
        Request::Set(change) => {
            let done = setup::change(&change).and_then(|()| counters.change(&change.link));
            reporter.answer(Op::Set, change.id, done.map_err(|error| error.to_string()))
        }
        Request::TraceStart { id } => {
            reporter.answer(Op::TraceStart, id, Err(ENGINE_ONLY.to_owned()))
        }
    }
}
