// SPDX-License-Identifier: Apache-2.0
//! Work inside a network namespace.
//!
//! A short-lived thread enters it: `/proc/sys/net` shows the namespace of the thread that opens it,
//! and programs the thread starts inherit it, so reading and writing sysctls costs no process at
//! all (fork and exec are expensive in virtual time), and the main thread stays in its own namespace.

use crate::AgentError;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;

/// A network namespace held open, or the agent's own.
#[derive(Debug)]
pub struct Namespace(Option<(PathBuf, File)>);

impl Namespace {
    /// Open the namespace at `path`, for instance `/proc/123/ns/net`; `None` is the agent's own.
    pub fn open(path: Option<&Path>) -> Result<Self, AgentError> {
        let Some(path) = path else {
            return Ok(Self(None));
        };
        let file = File::open(path).map_err(AgentError::file(path))?;
        Ok(Self(Some((path.to_owned(), file))))
    }

    /// Whether it is the agent's own.
    pub fn is_own(&self) -> bool {
        self.0.is_none()
    }

    /// Run `work` on a thread inside the namespace and return its result.
    pub fn run<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, AgentError> + Send,
    ) -> Result<T, AgentError> {
        let Some((path, file)) = &self.0 else {
            return work();
        };
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                    .map_err(|errno| AgentError::file(path)(errno.into()))?;
                work()
            });
            inside
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_no_namespace_is_named() {
        let namespace = Namespace::open(Some(Path::new("/proc/self/stat"))).unwrap();
        let error = namespace.run(|| Ok(())).unwrap_err();
        assert!(
            error.to_string().starts_with("/proc/self/stat: "),
            "{error}"
        );
    }
}
