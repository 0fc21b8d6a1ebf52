/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "trace/trace-migration_dedup.h"
