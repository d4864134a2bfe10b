// SPDX-License-Identifier: Apache-2.0
//! Directories that are this user's alone, at known places where others may write: /tmp, /var/tmp.
//!
//! Another user may have made one of that name before. In a directory with the sticky bit nobody but its owner can
//! replace one that is ours.

use crate::AgentError;
use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::io::Errno;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Permissions that others must not have.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Make the directory unless it is there, and see that it is ours. Returns it open: another user may later make one of
/// that name if it is removed.
pub fn make(path: &Path) -> Result<OwnedFd, AgentError> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(AgentError::file(path)(error))
        }
        _ => check(path),
    }
}

/// Refuse a path that is no directory, a symbolic link to one, or a directory that others own or may write to.
pub fn check(path: &Path) -> Result<OwnedFd, AgentError> {
    let file_error = |error: io::Error| AgentError::file(path)(error);
    let refuse = |complaint: &str| {
        Err(AgentError::Machine(format!(
            "{} {complaint}: it may have been created by another user; remove it",
            path.display()
        )))
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match open(path, flags, Mode::empty()) {
        Err(Errno::NOTDIR | Errno::LOOP) => return refuse("is no directory"),
        Err(Errno::ACCESS) => return refuse("is not this user's own directory"),
        opened => opened.map_err(|errno| file_error(errno.into()))?,
    };
    let status = fstat(&directory).map_err(|errno| file_error(errno.into()))?;
    if status.st_uid != rustix::process::geteuid().as_raw() {
        return refuse(&format!("is the directory of user {}", status.st_uid));
    }
    if status.st_mode & WRITABLE_BY_OTHERS != 0 {
        return refuse("is a directory that others may write to");
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn only_a_directory_of_our_own_is_taken() {
        let place = std::env::temp_dir().join(format!("atoll-private-{}", std::process::id()));
        make(&place).unwrap();
        make(&place).unwrap();
        let refused = |path: &Path| make(path).unwrap_err().to_string();
        let (link, file, open) = (place.join("link"), place.join("file"), place.join("open"));
        symlink(&place, &link).unwrap();
        assert!(refused(&link).contains(" is no directory: "));
        fs::write(&file, "").unwrap();
        assert!(refused(&file).contains(" is no directory: "));
        make(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(refused(&open).contains(" others may write to: "));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&place, Some(12_345), None).unwrap();
            assert!(refused(&place).contains(" is the directory of user 12345: "));
        }
        fs::remove_dir_all(&place).unwrap();
    }
}
