// SPDX-License-Identifier: Apache-2.0
// Compiled into PEPsal (docs/pep.md), in the place of functions of the C library.

#define _GNU_SOURCE
#include <sched.h>
#include <stddef.h>
#include <sys/epoll.h>

// Its limits stay those of its user, who may not raise them.
int setrlimit(int resource, const void *limits) { return 0; }
int setrlimit64(int resource, const void *limits) { return 0; }

// Its poller turns in a loop until its listener has set up a new connection. In virtual time there is one processor, and no
// time passes while a program runs, so that the other thread would never run.
int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout) {
  sched_yield();
  return epoll_pwait(epoll, events, most, timeout, NULL);
}
