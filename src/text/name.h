/* SPDX-License-Identifier: MIT */
/*
 * Key and tensor names as file names, and back.
 *
 * A name is the file name byte for byte wherever a file name can hold it. `%`, `/`, NUL and the
 * other bytes below 0x20 and 0x7f become %XX (upper-case hex); the names "." and ".." become %2E
 * and %2E%2E; the empty name is "%". What would be over 255 bytes is cut to the first bytes that
 * fit, followed by "%~" and 16 hex digits of a hash of the whole name. A `%` is followed by two
 * hex digits in all other cases, so the mapping is injective.
 *
 * Pure functions; any thread.
 */
#ifndef TEXT_NAME_H
#define TEXT_NAME_H

#include <stddef.h>

/* The longest file name, without its NUL: NAME_MAX of Linux, whose VFS has no longer ones. */
#define TREE_NAME_MAX 255

/* The file name of a key or tensor, NUL-terminated. Returns its length. */
size_t name_encode(const void *name, size_t n, char dst[TREE_NAME_MAX + 1]);

/*
 * The name that a file name stands for, into dst; its length in *ret. 0, or -ENOENT if it is not
 * what name_encode() gives for any name (a needless escape). -ENAMETOOLONG if it is a cut name:
 * its hash, not the name, is what identifies it.
 */
int name_decode(const char *file, char dst[TREE_NAME_MAX + 1], size_t *ret);

#endif
