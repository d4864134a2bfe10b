# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of the link engine beside its peers: ``make bench-link``.

    place.py        two machines and what is between them, in namespaces of this process's own
    probe.py        frames sent by a schedule and stamped where they pass (link-probe)
    boxes.py        what can stand between the machines: the engine, the kernel's tbf and netem, rattan
    ideal.py        what a perfect link would do with the same arrivals: pure
    scenarios.py    the measurements by name; throughput.py, delay.py, rate.py, joint.py, classes.py make them,
                    measurement.py is what they yield
    worker.py       makes a list of them, as first process of its namespaces
    collect.py      starts workers in this kernel and in User-Mode Linux, keeps medians
    store.py        the file of results; machine.py: who measured
    verdict.py      what is promised of which figure; table.py tells, figures.py draws, document.py writes the page

``benchmarks/link/run`` builds what measures and starts ``python -m linkbench``.
"""
