// SPDX-License-Identifier: Apache-2.0
//! Raw packet sockets, network namespaces and scheduling: the only unsafe code.
//!
//! Each module wraps one corner of Linux that neither the standard library nor `rustix` reaches.
//! Every function here is safe to call; the reason why is written at each `unsafe` block.
#![allow(unsafe_code)]

pub mod capture;
pub mod child_limits;
pub mod children;
pub mod clock_sync;
pub mod frame;
pub mod interface;
pub mod memory_limit;
mod packet_options;
pub mod packet_socket;
pub mod privileges;
pub mod process;
pub mod receive;
pub mod rt_scheduling;
pub mod shutdown_signal;
pub mod syn_socket;
mod syscall;
pub mod tcp_options;
mod tpacket_v2;
mod tpacket_v3;
mod transmit;
