// SPDX-License-Identifier: Apache-2.0
//! A limit that a program sets on its own memory, and the allocator that ends the program with the cause.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::sync::OnceLock;

/// Written when memory is refused; empty without a limit of its own.
static CAUSE: OnceLock<String> = OnceLock::new();

/// Limit the memory that this process may write to (`RLIMIT_DATA`). A lower limit that it already has stays.
///
/// With [`Allocator`], a request beyond the limit ends the process with exit code 1 and a line on standard error that
/// names the limit and the `settings` that it is computed from.
///
/// # Errors
/// If the kernel refuses the limit.
pub fn limit_memory(bytes: u64, settings: &str) -> io::Result<()> {
    let present = getrlimit(Resource::Data);
    if present.current.is_some_and(|limit| limit <= bytes) {
        return Ok(());
    }
    let (current, maximum) = (Some(bytes), present.maximum);
    setrlimit(Resource::Data, Rlimit { current, maximum })?;
    let megabytes = bytes / 1_000_000;
    CAUSE.get_or_init(|| {
        format!("atoll-host: out of memory: the limit of {megabytes} MB follows from {settings}\n")
    });
    Ok(())
}

/// The system's allocator; with a limit by [`limit_memory`] it ends the process when memory is refused.
#[derive(Debug)]
pub struct Allocator;

// SAFETY: each method is that of `System`, whose result is returned unless the process ends.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`.
        granted(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        granted(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `realloc`.
        granted(unsafe { System.realloc(memory, layout, bytes) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) };
    }
}

fn granted(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        if let Some(cause) = CAUSE.get() {
            // SAFETY: pointer and length are those of `cause`; neither call allocates.
            unsafe {
                libc::write(2, cause.as_ptr().cast(), cause.len());
                libc::_exit(1);
            }
        }
    }
    memory
}
