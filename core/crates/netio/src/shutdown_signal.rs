// SPDX-License-Identifier: Apache-2.0
//! Requests to end (SIGTERM, SIGINT, SIGHUP) as a descriptor that a poll loop can watch.

use crate::syscall::check;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

/// Block SIGTERM, SIGINT and SIGHUP; the returned descriptor becomes readable on each of them.
///
/// Call it before any thread is started: threads inherit the blocked signals, and a thread without
/// them would still be ended. Programs inherit the blocked signals too, unless they are started by way of
/// [`crate::process::configure_child`].
///
/// # Errors
/// Those of `pthread_sigmask(3)` and signalfd(2); none are expected.
pub fn requests() -> io::Result<OwnedFd> {
    let mut signals = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set before anything else uses it; the old mask is not
    // read; signalfd returns a new descriptor that nobody else owns.
    unsafe {
        check(libc::sigemptyset(signals.as_mut_ptr()))?;
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            check(libc::sigaddset(signals.as_mut_ptr(), signal))?;
        }
        let errno = libc::pthread_sigmask(libc::SIG_BLOCK, signals.as_ptr(), ptr::null_mut());
        if errno != 0 {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let fd = libc::signalfd(-1, signals.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        check(fd)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Block no signal: for a child between fork and exec.
pub(crate) fn unblock_all() -> io::Result<()> {
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: as above; both functions are async-signal-safe.
    unsafe {
        check(libc::sigemptyset(none.as_mut_ptr()))?;
        check(libc::sigprocmask(
            libc::SIG_SETMASK,
            none.as_ptr(),
            ptr::null_mut(),
        ))
    }
}
