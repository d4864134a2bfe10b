// SPDX-License-Identifier: Apache-2.0
//! Sends frames by a schedule and records when they pass chosen interfaces: `benchmarks/link` measures
//! links with.
//!
//!     link-probe < configuration.json
//!
//! One object in (`config.rs`), one out: the frames that each flow sent and each capture saw. A capture's file holds records
//! (`record.rs`). The stamps are the kernel's, taken when a frame reaches an interface, so that neither this sender's
//! lateness nor a reader's is in the difference of two of them.

mod capture;
mod config;
mod error;
mod frame;
mod port;
mod record;
mod schedule;
mod sender;

use capture::Captured;
use config::Config;
use error::ProbeError;
use sender::Sent;
use serde::Serialize;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// From the moment all is open to the first frame.
const LEAD: Duration = Duration::from_millis(20);

/// The report at the end, in the order of the configuration.
#[derive(Debug, Serialize)]
struct Outcome {
    flows: Vec<Sent>,
    captures: Vec<Captured>,
}

fn main() -> ExitCode {
    match configuration().and_then(|config| run(&config)) {
        Ok(outcome) => {
            println!("{}", serde_json::json!(outcome));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("link-probe: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn configuration() -> Result<Config, ProbeError> {
    let config: Config = serde_json::from_reader(io::stdin())?;
    config.check()?;
    Ok(config)
}

/// Open everything, send, wait until frames in flight have arrived, close.
fn run(config: &Config) -> Result<Outcome, ProbeError> {
    let captures = config
        .captures
        .iter()
        .map(capture::open)
        .collect::<Result<Vec<_>, _>>()?;
    let sockets = config
        .flows
        .iter()
        .map(|flow| port::open_sender(&flow.port))
        .collect::<Result<Vec<_>, _>>()?;
    let sent_all = AtomicBool::new(false);
    thread::scope(|scope| {
        let captures: Vec<_> = captures
            .into_iter()
            .map(|capture| scope.spawn(|| capture.run(&sent_all)))
            .collect();
        let start_ns = atoll_job::clock::monotonic_ns() + LEAD.as_nanos() as u64;
        let senders: Vec<_> = (0_u16..)
            .zip(config.flows.iter().zip(sockets))
            .map(|(number, (flow, socket))| {
                scope.spawn(move || sender::run(number, flow, &socket, start_ns))
            })
            .collect();
        let flows = senders
            .into_iter()
            .map(|sender| {
                sender
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect::<Result<Vec<_>, _>>();
        if flows.is_ok() {
            thread::sleep(Duration::from_nanos(config.settle_ns));
        }
        sent_all.store(true, Ordering::Relaxed);
        let captures = captures
            .into_iter()
            .map(|capture| {
                capture
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect::<Result<Vec<_>, _>>();
        Ok(Outcome {
            flows: flows?,
            captures: captures?,
        })
    })
}
