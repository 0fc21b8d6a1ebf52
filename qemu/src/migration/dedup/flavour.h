/*
 * What kind of build this is: one without faults.  In the flavour "faulty" of
 * qemu/build the file of this name in qemu/faulty takes its place.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
