// SPDX-License-Identifier: Apache-2.0
//! Requests that may take long: they run tools, delete files, or wait for the kernel.
//!
//! A worker thread carries them out, one after the other, while the poll loop goes on: it sends and receives heartbeats
//! and serves the jobs.

use crate::AgentError;
use crate::applied_state::AppliedState;
use rustix::event::{EventfdFlags, eventfd};
use serde_json::{Map, Value};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

const LOCK_POLL: Duration = Duration::from_millis(10);

/// The answer to a request.
pub type AgentAnswer = Result<Map<String, Value>, AgentError>;

/// The work of a request. It locks the applied state only if it needs it, so that a deletion does not delay undoing it.
pub type Task = Box<dyn FnOnce(&SharedState) -> AgentAnswer + Send>;

/// The applied state, shared with the thread.
#[derive(Debug, Clone, Default)]
pub struct SharedState(Arc<Mutex<AppliedState>>);

impl SharedState {
    /// Lock it.
    pub fn lock(&self) -> MutexGuard<'_, AppliedState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lock it within `limit`.
    pub fn lock_within(&self, limit: Duration) -> Option<MutexGuard<'_, AppliedState>> {
        let end = Instant::now() + limit;
        loop {
            match self.0.try_lock() {
                Ok(state) => return Some(state),
                Err(TryLockError::Poisoned(state)) => return Some(state.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() < end => thread::sleep(LOCK_POLL),
                Err(TryLockError::WouldBlock) => return None,
            }
        }
    }
}

/// The thread, its queue of requests, and its answers.
#[derive(Debug)]
pub struct Worker {
    /// The applied state, which tasks change.
    pub state: SharedState,
    tasks: Sender<(Value, Task)>,
    answers: Receiver<(Value, AgentAnswer)>,
    answered: Arc<OwnedFd>,
    unanswered: usize,
}

impl Worker {
    /// Start the thread. Signals that end the agent must be blocked by then: threads inherit that.
    pub fn begin() -> Result<Self, AgentError> {
        let state = SharedState::default();
        let (tasks, queue) = channel::<(Value, Task)>();
        let (sender, answers) = channel();
        let answered = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (shared_state, signal) = (state.clone(), Arc::clone(&answered));
        thread::Builder::new()
            .name("worker".to_owned())
            .spawn(move || {
                for (id, task) in queue {
                    let panicked = |_| {
                        Err(io::Error::other(
                            "the agent failed to do this; its log has the details",
                        )
                        .into())
                    };
                    let answer = catch_unwind(AssertUnwindSafe(|| task(&shared_state)));
                    if sender.send((id, answer.unwrap_or_else(panicked))).is_err() {
                        return; // the agent ends
                    }
                    rustix::io::write(&*signal, &1_u64.to_ne_bytes()).ok();
                }
            })?;
        Ok(Self {
            state,
            tasks,
            answers,
            answered,
            unanswered: 0,
        })
    }

    /// Queue a request; the answer to request `id` comes later.
    pub fn add(&mut self, id: Value, task: Task) -> Result<(), AgentError> {
        let ended = |_| io::Error::other("the thread that does this has ended");
        self.tasks.send((id, task)).map_err(ended)?;
        self.unanswered += 1;
        Ok(())
    }

    /// Whether all are done and their answers taken.
    pub fn is_idle(&self) -> bool {
        self.unanswered == 0
    }

    /// Readable when there are answers.
    pub fn answered(&self) -> BorrowedFd<'_> {
        self.answered.as_fd()
    }

    /// The answers that have come, by the number of their request.
    pub fn answers(&mut self) -> Vec<(Value, AgentAnswer)> {
        rustix::io::read(&*self.answered, &mut [0; 8]).ok();
        let answers: Vec<_> = self.answers.try_iter().collect();
        self.unanswered -= answers.len();
        answers
    }
}
