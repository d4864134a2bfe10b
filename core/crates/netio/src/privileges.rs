// SPDX-License-Identifier: Apache-2.0
//! Privileges of a child: its user and its capabilities (capabilities(7)), set between fork and exec. Neither the child
//! nor its descendants can regain more.

use crate::process::die_with;
use rustix::io::Errno;
use rustix::process::{Gid, Pid, Uid, getpid};
pub use rustix::thread::CapabilitySet;
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySets, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    set_capabilities_secure_bits, set_keep_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The privileges that a child keeps.
#[derive(Debug, Clone, Copy)]
pub struct Privileges {
    /// Capabilities of its parent that it keeps, whatever its user is.
    pub capabilities: CapabilitySet,
    /// User and group that it changes to, without supplementary groups; None: those of its parent.
    pub user: Option<(u32, u32)>,
}

/// Restrict the child that `command` starts to these privileges. Call it last, after
/// [`crate::process::configure_child`]: entering a namespace needs more. Without any capabilities none are removed.
///
/// A failure in the child is the error of `Command::spawn`.
pub fn restrict(command: &mut Command, privileges: Privileges) {
    let parent = getpid();
    // SAFETY: the closure runs between fork and exec; it makes system calls alone, without allocation or locks.
    unsafe {
        command.pre_exec(move || Ok(become_restricted(privileges, parent)?));
    }
}

fn become_restricted(privileges: Privileges, parent: Pid) -> Result<(), Errno> {
    let retained = capabilities(None)?.permitted & privileges.capabilities;
    // Both take a capability themselves: a process without it has no others, or gets none back (set_no_new_privs()).
    for capability in CapabilitySet::all().difference(retained).iter() {
        remove_capability_from_bounding_set(capability).ok();
    }
    // User 0 does not get all of them back by executing a program.
    let bits = CapabilitiesSecureBits::NO_ROOT | CapabilitiesSecureBits::NO_ROOT_LOCKED;
    set_capabilities_secure_bits(bits).ok();
    if let Some((user, group)) = privileges.user {
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        set_keep_capabilities(true)?;
        set_thread_groups(&[])?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
    }
    set_capabilities(None, exactly(retained))?;
    clear_ambient_capability_set()?;
    for capability in retained.iter() {
        configure_capability_in_ambient_set(capability, true)?;
    }
    set_no_new_privs(true)?;
    // Another user's process has lost its parent-death signal.
    die_with(parent)
}

/// Drop capabilities that the calling process needed only at its start.
///
/// # Errors
/// Those of capset(2); none are expected.
pub fn drop_capabilities(dropped: CapabilitySet) -> io::Result<()> {
    let retained = capabilities(None)?.permitted & !dropped;
    Ok(set_capabilities(None, exactly(retained))?)
}

fn exactly(retained: CapabilitySet) -> CapabilitySets {
    CapabilitySets {
        effective: retained,
        permitted: retained,
        inheritable: retained,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field of a child's /proc/self/status.
    fn status(privileges: Privileges) -> impl Fn(&str) -> String {
        let mut command = Command::new("sh");
        command.args(["-c", "exec cat /proc/self/status"]); // by another program: what an exec makes of it
        restrict(&mut command, privileges);
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        move |name| {
            let line = said
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        }
    }

    #[test]
    fn a_child_keeps_what_it_is_left_and_nothing_else() {
        let kept = CapabilitySet::NET_RAW;
        let held = capabilities(None).unwrap().permitted & kept;
        let said = status(Privileges {
            capabilities: kept,
            user: None,
        });
        for name in ["CapPrm:", "CapEff:", "CapAmb:", "CapInh:"] {
            assert_eq!(said(name), format!("{:016x}", held.bits()), "{name}");
        }
        assert_eq!(said("NoNewPrivs:"), "1");
    }

    #[test]
    fn another_user_keeps_it_too() {
        if !rustix::process::geteuid().is_root() {
            return; // only root becomes another user
        }
        let said = status(Privileges {
            capabilities: CapabilitySet::NET_RAW,
            user: Some((65_534, 65_534)),
        });
        assert_eq!(said("Uid:"), "65534 65534 65534 65534");
        assert_eq!(said("Gid:"), "65534 65534 65534 65534");
        assert_eq!(said("Groups:"), "");
        assert_eq!(
            said("CapEff:"),
            format!("{:016x}", CapabilitySet::NET_RAW.bits())
        );
        assert_eq!(said("CapBnd:"), said("CapEff:"));
    }
}
