# SPDX-License-Identifier: Apache-2.0
"""From YAML files to a Network and an Experiment: documents, raw models, resolution, messages about mistakes."""
