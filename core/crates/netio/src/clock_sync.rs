// SPDX-License-Identifier: Apache-2.0
//! What the kernel has been told about its clock by whoever disciplines it (chrony, ntpd, systemd-timesyncd).

use crate::syscall::check;
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// The state of `CLOCK_REALTIME`, as adjtimex(2) tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelClock {
    /// Somebody disciplines it (`STA_UNSYNC` is not set).
    pub synchronised: bool,
    /// How far it is off, by that one's estimate; the kernel's default when nobody tells.
    pub estimated_error: Duration,
    /// How far it may be off at most; grows by 500 us each second in which nobody tells.
    pub maximum_error: Duration,
}

/// How the clock is doing.
///
/// # Errors
/// Those of adjtimex(2): where it is forbidden altogether, as in some containers.
pub fn state() -> io::Result<KernelClock> {
    let mut told = MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: `modes` of zero changes nothing, and the kernel fills the rest.
    check(unsafe { libc::adjtimex(told.as_mut_ptr()) })?;
    // SAFETY: all fields are integers.
    let told = unsafe { told.assume_init() };
    Ok(KernelClock {
        synchronised: told.status & libc::STA_UNSYNC == 0,
        estimated_error: Duration::from_micros(u64::try_from(told.esterror).unwrap_or(0)),
        maximum_error: Duration::from_micros(u64::try_from(told.maxerror).unwrap_or(0)),
    })
}
