// SPDX-License-Identifier: Apache-2.0
//! Being awake in time: timer slack, real-time scheduling, memory that stays in memory.

use crate::process::check;
use std::io;

/// Ask that timers of the calling thread fire when they are due: the kernel otherwise delays them by
/// up to 50 us to save wake-ups (prctl(2), `PR_SET_TIMERSLACK`).
///
/// # Errors
/// Those of prctl(2); none are expected.
pub fn set_exact_timers() -> io::Result<()> {
    // SAFETY: prctl with integer arguments touches no memory of ours. 1 ns is the least; 0 means default.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) })
}

/// Run the calling **thread** before all ordinary ones (`SCHED_FIFO` at its lowest priority).
///
/// # Errors
/// `EPERM` for users without `CAP_SYS_NICE` or an `RTPRIO` limit, and in user namespaces.
pub fn set_real_time() -> io::Result<()> {
    // SAFETY: `sched_param` is plain old data, and the kernel only reads it.
    check(unsafe {
        let mut parameters: libc::sched_param = std::mem::zeroed();
        parameters.sched_priority = 1;
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters)
    })
}

/// Keep all memory of this process, present and future, from being paged out.
///
/// # Errors
/// `EPERM` for users who may not lift the limit on locked memory: below a limit a later allocation
/// could fail, so nothing is locked then.
pub fn lock_memory() -> io::Result<()> {
    let unlimited = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the kernel only reads `unlimited`; locking pages changes no content.
    unsafe {
        check(libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const unlimited))?;
        check(libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE))
    }
}
