// SPDX-License-Identifier: Apache-2.0
//! The life of a job: a process that reads its configuration from the first line of standard input, takes requests
//! from later lines, writes JSON lines to standard output, and ends on SIGTERM or when its input ends.
//!
//! ```no_run
//! # #[derive(serde::Deserialize)] struct Config {}
//! let mut input = atoll_job::Input::standard();
//! let config: Config = atoll_job::configuration(&input.first_line()?)?;
//! let signals = atoll_netio::shutdown_signal::requests()?; // before the first thread
//! let output = atoll_job::Output::start()?;
//! output.line(&serde_json::json!({"type": "ready"}));
//! // Poll `input`, `signals` and the job's own sockets; read requests with `input.read()` and `input.next_request()`.
//! output.finish();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod clock;
mod error;
mod input;
mod output;
mod request;

pub use error::{bad_configuration, configuration, failed, is_bad_configuration, wrong_setting};
pub use input::{Event, Input, Requests};
pub use output::{Output, log_line, print};
pub use request::{NotUnderstood, Refusal, request};
