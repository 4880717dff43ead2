# SPDX-License-Identifier: Apache-2.0
"""What bench/peers and bench/rivals share, and the parts of bench/rivals."""
