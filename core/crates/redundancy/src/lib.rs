// SPDX-License-Identifier: Apache-2.0
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod adaptive;
mod bursts;
mod loss_chain;
mod queueing_delay;
mod report;

pub use adaptive::{AdaptiveRedundancy, Target};
pub use bursts::{BurstCounter, LossSums, NUMBERS, RUNS};
pub use loss_chain::LossChain;
pub use queueing_delay::QueueingDelay;
pub use report::{GENERATIONS_MAX, Report};
