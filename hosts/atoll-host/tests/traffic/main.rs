// SPDX-License-Identifier: Apache-2.0
//! The traffic jobs as processes on loopback, with clients and servers that misbehave.

mod job;
mod load;
mod serve;
mod transfer;
mod udp;
