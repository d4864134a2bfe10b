// SPDX-License-Identifier: Apache-2.0
//! Raw packet sockets, network namespaces and scheduling: the only unsafe code.
#![allow(unsafe_code)]
