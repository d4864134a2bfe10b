// SPDX-License-Identifier: Apache-2.0
//! Raw packet sockets, network namespaces and scheduling: the only unsafe code.
//!
//! Each module wraps one corner of Linux that neither the standard library nor `rustix` reaches.
//! Every function here is safe to call; the reason why is written at each `unsafe` block.
#![allow(unsafe_code)]

mod block_ring;
pub mod capture;
pub mod children;
pub mod confine;
pub mod frame;
pub mod interface;
pub mod kernel_clock;
pub mod packet;
pub mod privileges;
pub mod process;
mod raw;
pub mod receive;
mod ring;
pub mod schedule;
pub mod stream;
mod syscall;
pub mod termination;
mod transmit;
