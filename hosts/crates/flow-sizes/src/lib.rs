// SPDX-License-Identifier: Apache-2.0
//! Flow sizes and servers as a pure function of seed, channel and flow number.
