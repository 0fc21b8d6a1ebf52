# SPDX-License-Identifier: Apache-2.0
"""What the guest's page cache holds, found from outside."""
