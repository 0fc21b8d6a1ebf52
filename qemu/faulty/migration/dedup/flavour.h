/*
 * What kind of build this is: one for tests, with the faults of inject.h
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#define DEDUP_FAULTY 1
