# SPDX-License-Identifier: Apache-2.0
"""Run a command inside a Linux kernel of its own: User-Mode Linux over a temporary overlay of this machine's files.

    kernel.py      the kernel of this machine, or how to build it
    guest_init.py  scripts that the kernel runs first (pure)
    boot.py        start the kernel, wait, clean up; real and virtual time
    recipe.py      the parts of a kernel for virtual time by release, and the hash that identifies it
    source.py      Debian's kernel sources, installed or downloaded, and the tools a build takes
    build.py       build that kernel
    cache.py       where built kernels are kept

Nothing inside outlives the kernel. Outside, only the output directory can be written. No privilege is needed but
user namespaces. ``python -m atoll_emulation.uml COMMAND`` tries it.
"""
