// SPDX-License-Identifier: Apache-2.0
//! Termination signals as something to poll.

use crate::process::check;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// `SIGTERM` and `SIGINT`, delivered to a descriptor that polls readable instead of ending the process.
#[derive(Debug)]
pub struct TerminationSignals {
    descriptor: OwnedFd,
}

impl TerminationSignals {
    /// Take over both signals. Threads started from now on leave them to this descriptor; call it before
    /// any are, since a thread that still accepts them would end the process.
    ///
    /// # Errors
    /// Those of signalfd(2); none are expected.
    pub fn watch() -> io::Result<Self> {
        // SAFETY: `signals` is initialised by sigemptyset before it is used; blocking signals and
        // creating a descriptor touch no other memory of ours.
        let descriptor = unsafe {
            let mut signals = std::mem::zeroed();
            check(libc::sigemptyset(&raw mut signals))?;
            check(libc::sigaddset(&raw mut signals, libc::SIGTERM))?;
            check(libc::sigaddset(&raw mut signals, libc::SIGINT))?;
            check(libc::sigprocmask(
                libc::SIG_BLOCK,
                &raw const signals,
                std::ptr::null_mut(),
            ))?;
            libc::signalfd(
                -1,
                &raw const signals,
                libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
            )
        };
        check(descriptor)?;
        // SAFETY: just created and owned by nobody else.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Self { descriptor })
    }
}

impl AsFd for TerminationSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
