# SPDX-License-Identifier: Apache-2.0
"""A command inside a Linux kernel of its own: User-Mode Linux over a throw-away overlay of this machine's files.

    kernel.py   which kernels this machine has, or what to do to have them
    guest.py    what the kernel runs first: pure, scripts
    run.py      start the kernel, wait, clean up; real and virtual time
    recipe.py   what kernels for virtual time are made of, release by release, and the hash they are known by
    source.py   Debian's kernel sources, installed or downloaded, and the tools a build takes
    build.py    build that kernel
    cache.py    where it is kept

Nothing inside outlives the kernel, nothing outside can be touched but the output directory, and no right is needed
beyond user namespaces. ``python -m atoll_emulation.uml COMMAND`` tries it.
"""
