// SPDX-License-Identifier: Apache-2.0
//! Sysctls of the calling thread's network namespace, verified after writing.

use crate::AgentError;
use crate::namespace::Namespace;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Read one: fields separated by single blanks, however the kernel spaces them.
pub fn read(name: &str) -> Result<String, AgentError> {
    let path = path_of(name)?;
    let text = fs::read_to_string(&path).map_err(|error| sysctl_error(name, error))?;
    Ok(normalise(&text))
}

/// Write one and read it back; returns the former value.
pub fn write(name: &str, value: &str) -> Result<String, AgentError> {
    let former = read(name)?;
    let value = normalise(value);
    if former != value {
        fs::write(path_of(name)?, &value).map_err(|error| sysctl_error(name, error))?;
        let actual = read(name)?;
        if actual != value {
            return Err(AgentError::Machine(format!(
                "sysctl {name}: wrote {value:?}, reads {actual:?}"
            )));
        }
    }
    Ok(former)
}

/// Write many in order; returns their values before, in the same order. When one fails, those already
/// written are restored.
pub fn write_all(sysctls: &[(String, String)]) -> Result<Vec<(String, String)>, AgentError> {
    let mut former = Vec::with_capacity(sysctls.len());
    for (name, value) in sysctls {
        match write(name, value) {
            Ok(before) => former.push((name.clone(), before)),
            Err(error) => {
                restore(&former);
                return Err(error);
            }
        }
    }
    Ok(former)
}

/// The original values of sysctls, by network namespace.
#[derive(Debug, Default)]
pub struct OriginalSysctls(Vec<NamespaceSysctls>);

#[derive(Debug)]
struct NamespaceSysctls {
    netns: Option<PathBuf>,
    namespace: Namespace,
    originals: Vec<(String, String)>,
}

impl OriginalSysctls {
    /// Remember the values before the first write; returns the namespace.
    pub fn record(
        &mut self,
        netns: Option<PathBuf>,
        namespace: Namespace,
        former: &[(String, String)],
    ) -> usize {
        let position = self.0.iter().position(|entry| entry.netns == netns);
        let index = position.unwrap_or_else(|| {
            self.0.push(NamespaceSysctls {
                netns,
                namespace,
                originals: Vec::new(),
            });
            self.0.len() - 1
        });
        let originals = &mut self.0[index].originals;
        for (name, before) in former {
            if !originals.iter().any(|(recorded, _)| recorded == name) {
                originals.push((name.clone(), before.clone()));
            }
        }
        index
    }

    /// One that [`Self::note`] named.
    pub fn namespace(&self, index: usize) -> &Namespace {
        &self.0[index].namespace
    }

    /// Those of the agent's own network namespace.
    pub fn own(&self) -> Vec<(String, String)> {
        let own = self.0.iter().filter(|entry| entry.namespace.is_own());
        own.flat_map(|entry| entry.originals.clone()).collect()
    }

    /// Restore everything; returns failures as messages, and remembers their values.
    pub fn restore(&mut self) -> Vec<String> {
        let mut problems = Vec::new();
        self.0.retain(|entry| {
            let restored = entry.namespace.run(|| Ok(restore(&entry.originals)));
            let failed = restored.unwrap_or_else(|error| vec![error.to_string()]);
            problems.extend_from_slice(&failed);
            !failed.is_empty()
        });
        problems
    }
}

/// Read those that are to be written; an unknown one is an error.
pub fn read_all(sysctls: &[(String, String)]) -> Result<Vec<(String, String)>, AgentError> {
    sysctls
        .iter()
        .map(|(name, _)| Ok((name.clone(), read(name)?)))
        .collect()
}

/// Restore the values that [`write_all`] returned, last first (`ip_forward` resets others when it changes).
/// Returns failures as messages; sysctls that no longer exist are gone with their interface.
pub fn restore(old: &[(String, String)]) -> Vec<String> {
    old.iter()
        .rev()
        .filter(|(name, _)| path_of(name).map_or(true, |path| path.exists()))
        .filter_map(|(name, before)| write(name, before).err())
        .map(|error| error.to_string())
        .collect()
}

/// As sysctl(8): dots separate, and a slash represents a dot within a name (`eth0/5` is `eth0.5`). A name that would
/// lead out of /proc/sys is none. `module.tcp_cubic.hystart` is a parameter of a module of TCP, which all network
/// namespaces share.
fn path_of(name: &str) -> Result<PathBuf, AgentError> {
    let parts: Vec<String> = name.split('.').map(|part| part.replace('/', ".")).collect();
    if parts
        .iter()
        .any(|part| ["", ".", ".."].contains(&part.as_str()))
    {
        return Err(AgentError::Machine(format!(
            "{name:?} is not the name of a sysctl"
        )));
    }
    if let [scope, module, parameter] = &parts[..] {
        if scope == "module" && module.starts_with("tcp_") {
            let module = Path::new("/sys/module").join(module);
            return Ok(module.join("parameters").join(parameter));
        }
    }
    Ok(Path::new("/proc/sys").join(parts.join("/")))
}

fn normalise(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn sysctl_error(name: &str, error: io::Error) -> AgentError {
    AgentError::file(format!("sysctl {name}"))(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_sysctl_8() {
        let path = |name| path_of(name).unwrap();
        assert_eq!(
            path("net.ipv4.tcp_ecn"),
            Path::new("/proc/sys/net/ipv4/tcp_ecn")
        );
        assert_eq!(
            path("net.ipv4.conf.eth0/5.rp_filter"),
            Path::new("/proc/sys/net/ipv4/conf/eth0.5/rp_filter")
        );
        assert_eq!(
            path("module.tcp_cubic.hystart"),
            Path::new("/sys/module/tcp_cubic/parameters/hystart")
        );
    }

    #[test]
    fn a_name_cannot_lead_out_of_the_sysctls() {
        for name in [
            "",
            ".",
            "net.",
            ".etc.passwd",
            "net.//.//.//.etc.passwd",
            "/.x",
            "net..ipv4",
        ] {
            let refused = read(name).unwrap_err().to_string();
            assert_eq!(refused, format!("{name:?} is not the name of a sysctl"));
        }
    }

    #[test]
    fn values_compare_whatever_blanks_the_kernel_uses() {
        assert_eq!(normalise("4096\t131072\t6291456\n"), "4096 131072 6291456");
        assert_eq!(read("kernel.ostype").unwrap(), "Linux");
    }

    #[test]
    fn an_unknown_sysctl_is_named() {
        let error = write_all(&[("net.ipv4.no_such".into(), "1".into())]).unwrap_err();
        assert!(
            error.to_string().starts_with("sysctl net.ipv4.no_such: "),
            "{error}"
        );
    }
}
