# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of the link engine compared with other emulators: ``make bench-link``.

    link_lab.py     two machines and the ports of the box between them, in namespaces of this process
    probe.py        frames sent by a schedule and stamped at chosen ports (link-probe)
    boxes.py        the boxes that are compared: the engine, the kernel's tbf and netem, rattan
    ideal.py        an ideal link with the same arrivals: pure
    scenarios.py    the measurements by name; throughput.py, delay.py, rate.py, joint.py, classes.py make them,
                    measurement.py has the figures that one yields
    worker.py       makes a list of measurements, as first process of its namespaces
    collect.py      starts workers in this kernel and in User-Mode Linux, keeps medians
    result_file.py  the file of results
    promises.py     bounds of figures, and checks of them
    table.py        tables; figures.py draws, figures_file.py writes both into a folder

``benchmarks/link/run`` builds the programs that measure and starts ``python -m linkbench``.
"""
