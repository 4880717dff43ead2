# SPDX-License-Identifier: Apache-2.0
"""Code that bench/peers and bench/rivals share, and the parts of bench/rivals."""
