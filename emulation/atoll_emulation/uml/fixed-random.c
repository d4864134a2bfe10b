// SPDX-License-Identifier: Apache-2.0
// LD_PRELOAD for the User-Mode Linux executable: the random bytes it asks its host for follow from UML_RANDOM_SEED.
// The generator is splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

static uint64_t state;
static int seeded;

ssize_t getrandom(void *buffer, size_t length, unsigned flags) {
    (void)flags;
    if (!seeded) {
        const char *seed = getenv("UML_RANDOM_SEED");
        state = seed ? strtoull(seed, NULL, 10) : 0;
        seeded = 1;
    }
    unsigned char *byte = buffer;
    for (size_t i = 0; i < length; i++) {
        uint64_t mixed = state += 0x9e3779b97f4a7c15ULL;
        mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
        mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
        byte[i] = (unsigned char)(mixed ^ (mixed >> 31));
    }
    return (ssize_t)length;
}
