// SPDX-License-Identifier: Apache-2.0
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod adaptive;
mod bursts;
mod loss_chain;
mod queueing_delay;
mod report;

pub use adaptive::{AdaptiveRedundancy, Target};
pub use bursts::{BURST_CLASSES, BurstCounter, LossSums, NUMBER_MODULUS};
pub use loss_chain::LossChain;
pub use queueing_delay::QueueingDelay;
pub use report::{GENERATIONS_MAX, Report};
