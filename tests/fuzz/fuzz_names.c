/* SPDX-License-Identifier: MIT */
/*
 * Treats arbitrary bytes as a name and as a file name: names survive the round trip, and an
 * accepted file name is the only spelling of its name.
 */
#include "fuzz.h"

#include <errno.h>
#include <string.h>

#include "text/name.h"

static void check_name(const char *name, size_t n)
{
    char file[TREE_NAME_MAX + 1], back[TREE_NAME_MAX + 1];
    size_t len = name_encode(name, n, file), got;
    FUZZ_CHECK(len > 0 && len <= TREE_NAME_MAX && len == strlen(file));
    FUZZ_CHECK(!strchr(file, '/') && strcmp(file, ".") != 0 && strcmp(file, "..") != 0);
    int r = name_decode(file, back, &got);
    FUZZ_CHECK(r == 0 || (r == -ENAMETOOLONG && n > TREE_NAME_MAX / 3));
    FUZZ_CHECK(r != 0 || (got == n && memcmp(back, name, n) == 0));
}

static void check_file(const char *file)
{
    char name[TREE_NAME_MAX + 1], again[TREE_NAME_MAX + 1];
    size_t n;
    int r = name_decode(file, name, &n);
    FUZZ_CHECK(r == 0 || r == -ENOENT || r == -ENAMETOOLONG);
    if (r != 0)
        return;
    (void)name_encode(name, n, again);
    FUZZ_CHECK(strcmp(again, file) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *file = malloc(size + 1);
    if (!file)
        return 0;
    if (size)
        memcpy(file, data, size);
    file[size] = '\0';
    check_name(file, size);
    check_file(file);
    free(file);
    return 0;
}
