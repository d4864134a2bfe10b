// SPDX-License-Identifier: Apache-2.0
//! Privileges of a job on this machine (docs/privileges.md): its requested capabilities, and its user.

use crate::AgentError;
use netio::privileges::{CapabilitySet, Privileges};
use serde::Deserialize;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// User and group that own nothing (`nobody` and `nogroup` of Debian, the overflow ids of the kernel).
const NOBODY: (u32, u32) = (65_534, 65_534);

/// Bits of a mode by which other users may read a directory and pass it.
const OTHERS_MAY_PASS: u32 = 0o005;

/// A capability that jobs may be left, by its name in requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Privilege {
    NetAdmin,
    NetRaw,
    NetBindService,
    SysNice,
    IpcLock,
    DacOverride,
}

/// The user of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum User {
    /// The agent's.
    #[default]
    Agent,
    /// The user `nobody`, or the owner of a directory that only its owner may enter. An agent that cannot change its user
    /// starts the job as its own.
    Nobody,
}

impl Privilege {
    fn capability(self) -> CapabilitySet {
        match self {
            Self::NetAdmin => CapabilitySet::NET_ADMIN,
            Self::NetRaw => CapabilitySet::NET_RAW,
            Self::NetBindService => CapabilitySet::NET_BIND_SERVICE,
            Self::SysNice => CapabilitySet::SYS_NICE,
            Self::IpcLock => CapabilitySet::IPC_LOCK,
            Self::DacOverride => CapabilitySet::DAC_OVERRIDE,
        }
    }
}

/// The privileges of a job in `directory`.
pub fn granted(
    privileges: &[Privilege],
    user: User,
    directory: Option<&Path>,
) -> Result<Privileges, AgentError> {
    let user = match user {
        User::Nobody if can_change_user() => Some(owner(directory)?),
        _ => None,
    };
    let capabilities = privileges.iter().map(|p| p.capability()).collect();
    Ok(Privileges { capabilities, user })
}

fn owner(directory: Option<&Path>) -> Result<(u32, u32), AgentError> {
    let Some(directory) = directory else {
        return Ok(NOBODY);
    };
    let status = fs::metadata(directory).map_err(AgentError::file(directory))?;
    let is_open = status.mode() & OTHERS_MAY_PASS == OTHERS_MAY_PASS;
    Ok(if is_open {
        NOBODY
    } else {
        (status.uid(), status.gid())
    })
}

/// Whether this process may become another user, and its user namespace has nobody.
fn can_change_user() -> bool {
    let has_capabilities = rustix::thread::capabilities(None).is_ok_and(|capabilities| {
        let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
        capabilities.effective.contains(needed)
    });
    let text = |file| fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    has_capabilities
        && maps(NOBODY.0, &text("uid_map"))
        && maps(NOBODY.1, &text("gid_map"))
        && text("setgroups").trim() != "deny"
}

fn maps(id: u32, map: &str) -> bool {
    map.lines().any(|line| {
        let mut numbers = line
            .split_whitespace()
            .filter_map(|word| word.parse::<u64>().ok());
        let (first, _, count) = (numbers.next(), numbers.next(), numbers.next());
        first
            .zip(count)
            .is_some_and(|(first, count)| (first..first + count).contains(&u64::from(id)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_those_that_are_mapped() {
        assert!(maps(65_534, "         0          0 4294967295\n"));
        assert!(maps(65_534, "0 1000 1\n1 100000 65536\n"));
        assert!(!maps(65_534, "         0       1000          1\n"));
    }

    #[test]
    fn a_private_directory_s_program_is_its_owner_s() {
        let nobody_s = owner(Some(Path::new("/"))).unwrap();
        assert_eq!(nobody_s, NOBODY);
        assert_eq!(owner(None).unwrap(), NOBODY);
        let place = std::env::temp_dir().join(format!("atoll-rights-{}", std::process::id()));
        crate::private_directory::make(&place).unwrap();
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(owner(Some(&place)).unwrap().0, own);
        fs::remove_dir(&place).unwrap();
    }
}
