// SPDX-License-Identifier: Apache-2.0
//! The end of a program at the limit of memory that it has set itself. Its own process: the limit stays.

use atoll_netio::memory_limit::{Allocator, limit_memory};
use std::process::{Command, Output};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

const IS_CHILD: &str = "ATOLL_TEST_MEMORY";

/// This test as a process of its own, which takes memory until it ends.
fn child(shell_limit: &str) -> Output {
    let program = std::env::current_exe().unwrap();
    let name = "a_program_beyond_its_limit_of_memory_ends_with_the_cause";
    let script = format!("{shell_limit}; exec '{}' --exact {name}", program.display());
    Command::new("sh")
        .args(["-c", &script])
        .env(IS_CHILD, "1")
        .output()
        .unwrap()
}

#[test]
fn a_program_beyond_its_limit_of_memory_ends_with_the_cause() {
    if std::env::var_os(IS_CHILD).is_some() {
        limit_memory(64_000_000, "connections_max").unwrap();
        let taken: Vec<Vec<u8>> = (0..100).map(|_| vec![1; 1 << 20]).collect();
        panic!("took {} MiB", taken.len());
    }
    let ended = child(":");
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(
        said,
        "atoll-host: out of memory: the limit of 64 MB follows from connections_max\n"
    );
    assert_eq!(ended.status.code(), Some(1));

    let lower = child("ulimit -d 32768");
    let said = String::from_utf8(lower.stderr).unwrap();
    assert!(said.contains("memory allocation of"), "{said}");
    assert_eq!(
        lower.status.code(),
        None,
        "aborted: who set that limit names it"
    );
}
