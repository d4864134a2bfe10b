// SPDX-License-Identifier: Apache-2.0
//! Errors of system calls, and the options of sockets that `rustix` does not have.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Convert the result of a system call that returns -1 and sets errno on failure.
pub(crate) fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Set an option of `socket`.
pub(crate) fn set_option<T>(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    option: &T,
) -> io::Result<()> {
    // SAFETY: pointer and length describe `option`, which the kernel only reads.
    check(unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(option).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
}

/// Read an option into `option`, any content of which must be valid, and return it.
pub(crate) fn read_option<T>(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    mut option: T,
) -> io::Result<T> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `option`; the callers' types are numbers, arrays and structures of numbers.
    check(unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw mut option).cast(),
            &raw mut length,
        )
    })?;
    Ok(option)
}
