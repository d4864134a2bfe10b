// SPDX-License-Identifier: Apache-2.0
//! Requests that may take long: they run tools, delete files, or wait for the kernel.
//!
//! A thread of its own does them, one after the other, so that the poll loop goes on meanwhile: it says that the agent
//! is there, hears that the other side is, and serves the jobs.

use crate::AgentError;
use crate::applied_state::Holdings;
use rustix::event::{EventfdFlags, eventfd};
use serde_json::{Map, Value};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

const A_MOMENT: Duration = Duration::from_millis(10);

/// What a request answers.
pub type Answer = Result<Map<String, Value>, AgentError>;

/// What a request does. It locks the holdings only if it needs them: a deletion does not keep them from being undone.
pub type Errand = Box<dyn FnOnce(&Held) -> Answer + Send>;

/// The agent's holdings, shared with the thread.
#[derive(Debug, Clone, Default)]
pub struct Held(Arc<Mutex<Holdings>>);

impl Held {
    /// Wait until nobody else has them.
    pub fn lock(&self) -> MutexGuard<'_, Holdings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, but not for longer than `limit`.
    pub fn lock_within(&self, limit: Duration) -> Option<MutexGuard<'_, Holdings>> {
        let end = Instant::now() + limit;
        loop {
            match self.0.try_lock() {
                Ok(held) => return Some(held),
                Err(TryLockError::Poisoned(held)) => return Some(held.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() < end => thread::sleep(A_MOMENT),
                Err(TryLockError::WouldBlock) => return None,
            }
        }
    }
}

/// The thread, what waits for it, and what it has answered.
#[derive(Debug)]
pub struct Errands {
    /// The holdings that errands change.
    pub held: Held,
    waiting: Sender<(Value, Errand)>,
    answers: Receiver<(Value, Answer)>,
    answered: Arc<OwnedFd>,
    unanswered: usize,
}

impl Errands {
    /// Start the thread. Signals that end the agent must be blocked by then: threads inherit that.
    pub fn begin() -> Result<Self, AgentError> {
        let held = Held::default();
        let (waiting, errands) = channel::<(Value, Errand)>();
        let (done, answers) = channel();
        let answered = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (own, signal) = (held.clone(), Arc::clone(&answered));
        thread::Builder::new()
            .name("errands".to_owned())
            .spawn(move || {
                for (id, errand) in errands {
                    let panicked = |_| {
                        Err(io::Error::other("the agent failed at it; its log says where").into())
                    };
                    let answer = catch_unwind(AssertUnwindSafe(|| errand(&own)));
                    if done.send((id, answer.unwrap_or_else(panicked))).is_err() {
                        return; // the agent ends
                    }
                    rustix::io::write(&*signal, &1_u64.to_ne_bytes()).ok();
                }
            })?;
        Ok(Self {
            held,
            waiting,
            answers,
            answered,
            unanswered: 0,
        })
    }

    /// Have it done after those before; the answer to request `id` comes later.
    pub fn add(&mut self, id: Value, errand: Errand) -> Result<(), AgentError> {
        let gone = |_| io::Error::other("the thread that does this has ended");
        self.waiting.send((id, errand)).map_err(gone)?;
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
    pub fn answers(&mut self) -> Vec<(Value, Answer)> {
        rustix::io::read(&*self.answered, &mut [0; 8]).ok();
        let answers: Vec<_> = self.answers.try_iter().collect();
        self.unanswered -= answers.len();
        answers
    }
}
