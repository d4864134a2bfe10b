# SPDX-License-Identifier: Apache-2.0
"""A command inside a Linux kernel of its own: User-Mode Linux over a throw-away overlay of this machine's files.

    kernel.py   which kernel and modules this machine has, or what to install
    guest.py    what the kernel runs first: pure, a script
    run.py      start the kernel, wait, clean up

Nothing inside outlives the kernel, nothing outside can be touched but the output directory, and no right is needed
beyond user namespaces. ``python -m atoll_emulation.uml COMMAND`` tries it.
"""
