# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of the link engine beside its peers: ``make bench-link``.

place.py      two machines and what is between them, in namespaces of this process's own
probe.py      frames sent by a schedule and stamped where they pass (link-probe)
boxes.py      what can stand between the machines: the engine, the kernel's tbf and netem, rattan
ideal.py      what a perfect link would do with the same arrivals: pure
scenarios.py  the measurements by name; throughput.py, delay.py, rate.py, joint.py, classes.py make them
collect.py    runs them in their places (this kernel, User-Mode Linux), keeps medians
verdict.py    what is promised of which figure; table.py prints, figures.py draws
"""
