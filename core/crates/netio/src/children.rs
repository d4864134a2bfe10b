// SPDX-License-Identifier: Apache-2.0
//! Children that have ended, with their resource usage.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// A child that has ended and been collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Its process id, which may be given out again from now on.
    pub pid: i32,
    /// How it ended.
    pub status: ExitStatus,
    /// CPU time, user and system, of it and of its children that it had waited for.
    pub cpu: Duration,
    /// Largest resident memory of it or of one of those children, in bytes.
    pub peak_memory_bytes: u64,
}

/// Collect a child that has ended; none if none has, or there is none. Children are those of the calling **thread**, and
/// those that the process adopts while this is its first thread: what other threads start, they wait for themselves.
///
/// # Errors
/// Those of wait4(2); none are expected.
pub fn collect() -> io::Result<Option<Ended>> {
    let flags = libc::WNOHANG | libc::__WNOTHREAD;
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both pointers are to memory of ours, of the types that wait4 fills.
        let pid = unsafe { libc::wait4(-1, &raw mut status, flags, usage.as_mut_ptr()) };
        if pid == 0 {
            return Ok(None);
        }
        if pid > 0 {
            // SAFETY: zeroed is a valid rusage, whatever part of it the kernel has filled.
            let usage = unsafe { usage.assume_init() };
            return Ok(Some(Ended {
                pid,
                status: ExitStatus::from_raw(status),
                cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
                peak_memory_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
            }));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ECHILD) => return Ok(None),
            _ => return Err(error),
        }
    }
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::thread;

    #[test]
    fn what_another_thread_has_started_is_left_to_it() {
        let mut child = Command::new("true").spawn().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(200));
                assert_eq!(collect().unwrap(), None);
            });
        });
        assert!(child.wait().unwrap().success());
    }
}
