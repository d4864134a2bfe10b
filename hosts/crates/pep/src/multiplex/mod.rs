// SPDX-License-Identifier: Apache-2.0
//! Many connections in one TCP connection between two PEPs, which persists while they come and go.

pub(crate) mod credit;
pub(crate) mod frame;
pub(crate) mod leg;
pub(crate) mod renewal;
pub(crate) mod stream;
