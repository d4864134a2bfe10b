// SPDX-License-Identifier: Apache-2.0
//! Requests to end (SIGTERM, SIGINT, SIGHUP) as a descriptor that a poll loop can watch.

use crate::process::check;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

/// From now on SIGTERM, SIGINT and SIGHUP end nothing: the returned descriptor becomes readable.
///
/// Call it before any thread is started: threads inherit the blocked signals, and a thread without
/// them would still be ended. Programs started by [`std::process::Command`] get the default back.
///
/// # Errors
/// Those of `pthread_sigmask(3)` and signalfd(2); none are expected.
pub fn requests() -> io::Result<OwnedFd> {
    let mut signals = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set before anything else uses it; the old mask is not asked
    // for; signalfd returns a new descriptor that nobody else owns.
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
