# SPDX-License-Identifier: Apache-2.0
"""Reading the disk images of running guests, and nothing else.

What may be opened (paths), with which privilege (access), and what is
done to it: locks, samples, rates.  identity and agent use it; it uses
neither.
"""
