/* SPDX-License-Identifier: MIT */
/*
 * Key and tensor names as file names, and back.
 *
 * The file name is the name itself, byte for byte, where a file name can hold it. `%`, `/`, NUL and
 * the other bytes below 0x20 and 0x7f become %XX (upper-case hex); the names "." and ".." become
 * %2E and %2E%2E; the empty name is "%". A result longer than 255 bytes is cut to the bytes that
 * fit, followed by "%~" and 16 hex digits of a hash of the whole name. In all other cases two hex
 * digits follow a `%`, so the mapping is injective.
 *
 * Pure functions. Callable from any thread.
 */
#ifndef TEXT_NAME_H
#define TEXT_NAME_H

#include <stddef.h>

/* The longest file name, without its NUL: NAME_MAX of Linux's VFS. */
#define TREE_NAME_MAX 255

/* Write the file name of a key or tensor, NUL-terminated. Returns its length. */
size_t name_encode(const void *name, size_t n, char dst[TREE_NAME_MAX + 1]);

/*
 * Undo name_encode(): write the name to dst and its length to *ret. Returns 0, -ENOENT if
 * name_encode() never produces this file name (because of a needless escape, for example), or
 * -ENAMETOOLONG for a cut name, which only its hash identifies.
 */
int name_decode(const char *file, char dst[TREE_NAME_MAX + 1], size_t *ret);

#endif
