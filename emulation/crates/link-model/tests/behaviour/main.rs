// SPDX-License-Identifier: Apache-2.0
//! What links do, seen from outside.

mod changes;
mod every_link;
mod loads;
mod snapshot;
