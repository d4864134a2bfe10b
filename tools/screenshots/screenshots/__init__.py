# SPDX-License-Identifier: Apache-2.0
"""Pictures for docs/images, made from a real run by a module for each kind, and the browser that some of them need."""
