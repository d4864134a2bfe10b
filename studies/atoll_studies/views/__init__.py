# SPDX-License-Identifier: Apache-2.0
"""Views of results: tables of texts, documents, plots."""
