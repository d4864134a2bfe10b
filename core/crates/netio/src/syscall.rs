// SPDX-License-Identifier: Apache-2.0
//! How system calls fail.

use std::io;

/// The result of a system call that answers -1 and sets errno when it fails.
pub(crate) fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
