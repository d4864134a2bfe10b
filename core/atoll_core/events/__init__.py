# SPDX-License-Identifier: Apache-2.0
"""Events of a testbed and its runs: types, publish/subscribe, and the text of each. Every package may import it."""
