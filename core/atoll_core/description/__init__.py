# SPDX-License-Identifier: Apache-2.0
"""Reading YAML files to a Network and an Experiment: documents, raw models, resolution, error messages."""
