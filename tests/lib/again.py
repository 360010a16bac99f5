# SPDX-License-Identifier: Apache-2.0
"""Measurements on a host that may stand still for seconds."""


def again(measure, good, tries=3):
    """What measure() returned: the first that is good, or the last of all. A
    host that stands still spoils one of them; what is our fault, each."""
    for _ in range(tries):
        value = measure()
        if good(value):
            break
    return value
