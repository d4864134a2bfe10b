// SPDX-License-Identifier: Apache-2.0
// Compiled and run by test_virtual_kernel: vector registers keep what a thread put there, whatever comes between.
// System calls, page faults, sleeps, signals that use the registers themselves, threads that take turns, forks.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 6, ROUNDS = 2000, SHORT_THREADS = 100 };

static volatile long wrong, handled;

static void overwrite(int signal) {
    (void)signal;
    double other[2] = {-1, (double)handled};
    __asm__ volatile("movupd %0, %%xmm7\n movupd %0, %%xmm8" ::"m"(other) : "xmm7", "xmm8");
    handled++;
    syscall(SYS_getppid);
}

// Registers set, then a system call (one that sleeps, yields or does neither) and a page fault, then looked at.
static void check(long thread, int round) {
    double in[2] = {(double)thread, round}, seven[2], eight[2];
    struct timespec short_time = {0, 1000};
    long call = (long[]){SYS_nanosleep, SYS_sched_yield, SYS_getppid}[round % 3], result;
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    __asm__ volatile(
        "movupd %[in], %%xmm7\n movupd %[in], %%xmm8\n"
        "syscall\n movb $1, (%[page])\n"
        "movupd %%xmm7, %[seven]\n movupd %%xmm8, %[eight]\n"
        : [seven] "=m"(seven), [eight] "=m"(eight), "=a"(result)
        : [in] "m"(in), [page] "b"(page), "a"(call), "D"(&short_time), "S"(NULL)
        : "rcx", "r11", "memory", "xmm7", "xmm8");
    wrong += memcmp(in, seven, sizeof in) || memcmp(in, eight, sizeof in);
    munmap(page, 4096);
}

static void check_in_child(long thread) {
    pid_t child = fork();
    if (child == 0) {
        wrong = 0;
        for (int round = 0; round < 20; round++) check(thread + 1000, round);
        _exit(wrong != 0);
    }
    int status;
    waitpid(child, &status, 0);
    wrong += status != 0;
}

static void *work(void *argument) {
    for (int round = 0; round < ROUNDS; round++) {
        check((long)argument, round);
        if (round % 100 == 0) raise(SIGUSR1);
        if (round % 500 == 0) check_in_child((long)argument);
    }
    return NULL;
}

static void *work_briefly(void *argument) {
    for (int round = 0; round < 5; round++) check((long)argument, round);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    struct itimerval often = {{0, 3000}, {0, 3000}};
    signal(SIGUSR1, overwrite);
    signal(SIGALRM, overwrite);
    setitimer(ITIMER_REAL, &often, NULL);
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (long i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (long i = 0; i < SHORT_THREADS; i++) {
        pthread_create(&threads[0], NULL, work_briefly, (void *)(i + 100));
        pthread_join(threads[0], NULL);
    }
    printf("%ld wrong, %s\n", wrong, handled > THREADS * ROUNDS / 100 ? "interrupted" : "never interrupted");
    return wrong != 0;
}
