/* SPDX-License-Identifier: MIT */
/*
 * Describes the contents of a directory of models as text, one line per entry. Each entry must also
 * be found when its name is looked up. The directory is built from lines ("file", "link", "fifo",
 * "dir") as in shelf_top_add().
 *
 *     SHOWS("in", "m.gguf out/m.gguf\n", {"link", "in/m.gguf", "../out/m.gguf"}, FILE("out/m.gguf"));
 *
 * Only one thread at a time may call these functions.
 */
#ifndef TESTS_LIB_SHELF_SHOWS_H
#define TESTS_LIB_SHELF_SHOWS_H

#include <stdbool.h>
#include <stddef.h>

struct line {
    const char *what, *name, *text;
};

/* Compare the contents of the directory `below` of shelf_top with `want`. strict: see struct
 * reach. */
void check_below(const char *below, bool strict, const struct line *lines, size_t n,
                 const char *want);

#define SHOWS(below, want, ...)                                   \
    check_below(below, false, (const struct line[]){__VA_ARGS__}, \
                sizeof((const struct line[]){__VA_ARGS__}) / sizeof(struct line), want)
#define FILE(name)           \
    {                        \
        "file", name, "GGUF" \
    }

#endif
