// SPDX-License-Identifier: Apache-2.0
//! The behaviour of links, seen from outside.

mod changes;
mod every_link;
mod loads;
mod low_priority;
mod snapshot;
