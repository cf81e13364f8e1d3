/* SPDX-License-Identifier: MIT */
/*
 * A directory for models, below /tmp, and the files that tests put in it.
 *
 *     shelf_top_make();
 *     shelf_top_add("file", "sub/m.gguf", "GGUF");     or "link" PATH TARGET, "fifo" PATH, "dir" PATH
 *     ... shelf_top ...
 *     shelf_top_remove();
 *
 * Only one thread at a time may call these functions.
 */
#ifndef TESTS_LIB_SHELF_TOP_H
#define TESTS_LIB_SHELF_TOP_H

#define A64 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B64 "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

extern char shelf_top[]; /* path of the directory once it exists */

void shelf_top_make(void);
/* Add a file; parent directories are created. */
void shelf_top_add(const char *what, const char *name, const char *text);
void shelf_top_remove(void);

#endif
