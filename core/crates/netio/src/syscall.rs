// SPDX-License-Identifier: Apache-2.0
//! Errors of system calls.

use std::io;

/// Convert the result of a system call that returns -1 and sets errno on failure.
pub(crate) fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
