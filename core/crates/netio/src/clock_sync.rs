// SPDX-License-Identifier: Apache-2.0
//! State of the kernel's clock synchronisation, as set by chrony, ntpd or systemd-timesyncd.

use crate::syscall::check;
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// The state of `CLOCK_REALTIME`, as read by adjtimex(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelClock {
    /// It is synchronised (`STA_UNSYNC` is not set).
    pub synchronised: bool,
    /// Estimated error; the kernel's default without synchronisation.
    pub estimated_error: Duration,
    /// Maximum error; grows by 500 us each second without an update.
    pub maximum_error: Duration,
}

/// Read the state of the clock.
///
/// # Errors
/// Those of adjtimex(2): where it is forbidden altogether, as in some containers.
pub fn state() -> io::Result<KernelClock> {
    let mut timex = MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: `modes` of zero changes nothing, and the kernel fills the rest.
    check(unsafe { libc::adjtimex(timex.as_mut_ptr()) })?;
    // SAFETY: all fields are integers.
    let timex = unsafe { timex.assume_init() };
    Ok(KernelClock {
        synchronised: timex.status & libc::STA_UNSYNC == 0,
        estimated_error: Duration::from_micros(u64::try_from(timex.esterror).unwrap_or(0)),
        maximum_error: Duration::from_micros(u64::try_from(timex.maxerror).unwrap_or(0)),
    })
}
