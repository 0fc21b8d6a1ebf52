/* SPDX-License-Identifier: Apache-2.0 */
/* Gives up all that a lister does not need once everything is open. */
#ifndef PRIVILEGES_H
#define PRIVILEGES_H

/*
 * From here on: user and group "nobody", no capability but those to read
 * files and to open them by handle, no new ones, and none but the system
 * calls named in privileges.c, none of which writes to a file system.
 *
 * NULL when all is well, else what did not work.
 */
const char *privileges_drop(void);

#endif
