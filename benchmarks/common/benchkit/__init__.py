# SPDX-License-Identifier: Apache-2.0
"""The parts that all benchmarks share: command line, results as JSON, Markdown tables, their place in the docs."""
