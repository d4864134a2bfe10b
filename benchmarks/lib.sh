# SPDX-License-Identifier: Apache-2.0
# Read by a benchmark's run that builds something first: Ctrl-C ends that, too, with one line and exit code 130, as
# benchkit.program does from then on. Cargo and uv, which have the signal as well, end without a word.
# shellcheck shell=bash
trap 'printf "interrupted: nothing was measured; the build continues the next time\n" >&2; exit 130' INT
