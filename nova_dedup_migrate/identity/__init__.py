# SPDX-License-Identifier: Apache-2.0
"""Whether two hosts see the same disk, and not only the same name.

challenge is the source's half, answer the destination's; what crosses
between them are objects of rpc.objects.
"""
