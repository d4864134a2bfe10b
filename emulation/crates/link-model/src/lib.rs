// SPDX-License-Identifier: Apache-2.0
//! The satellite link and delay classes as pure functions of time.
