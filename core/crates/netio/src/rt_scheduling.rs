// SPDX-License-Identifier: Apache-2.0
//! Real-time behaviour of threads: timer slack, real-time scheduling, locked memory.

use crate::syscall::check;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Set the least timer slack for the calling thread: by default the kernel delays timers by
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
/// Done only with `CAP_IPC_LOCK`: for others the limit on locked memory would make later allocations fail.
///
/// # Errors
/// `EPERM` without that capability; nothing is locked then.
pub fn lock_memory() -> io::Result<()> {
    let limit = getrlimit(Resource::Memlock);
    // With a limit of 0 only the capability makes mlockall(2) succeed.
    let zero_limit = Rlimit {
        current: Some(0),
        ..limit
    };
    setrlimit(Resource::Memlock, zero_limit)?;
    let locked = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE);
    setrlimit(Resource::Memlock, limit)?;
    Ok(locked?)
}
