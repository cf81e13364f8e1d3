/* SPDX-License-Identifier: MIT */
/* Names in metadata/: see helper.h. */
#include "live/helper.h"

#include <ctype.h>
#include <string.h>

#include "gguf/keys.h"
#include "gguf/value.h"

static bool all(const char *s, int (*is)(int))
{
    for (; *s; s++)
        if (!is((unsigned char)*s))
            return false;
    return true;
}

/* "bak" ... or six letters or digits, as mktemp(3) makes them. */
static bool helper_suffix(const char *s)
{
    static const char *const known[] = {"bak", "orig", "tmp", "new", "old", "rej", "swp", "save"};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(s, known[i]) == 0)
            return true;
    return strlen(s) == 6 && all(s, isalnum);
}

static int is_tempfile(int c)
{
    return isalnum(c) || c == '_';
}

/* Names without a dot that are known: vim's probe 4913, sed's sedXXXXXX, Python's tmpXXXXXXXX (its
 * letters, digits and underscores), and any mktemp(3) name. */
static bool known_dotless(const char *s)
{
    size_t n = strlen(s);
    if (all(s, isdigit))
        return true;
    if (n < 6 || !all(s, is_tempfile))
        return false;
    if (strncmp(s, "tmp", 3) == 0)
        return true;
    return all(s, isalnum) && (strncmp(s, "sed", 3) == 0 || n == 8 /* perl -i */);
}

static bool six(const char *s)
{
    size_t n = 0;
    while (n < 6 && isalnum((unsigned char)s[n]))
        n++;
    return n == 6;
}

/* helix's backup: the key's name, six letters or digits, ".bck". */
static bool is_helix(const char *file, size_t len, key_known_fn *known, void *ctx)
{
    enum { TAIL = 6 + 4 };
    return len > TAIL && strcmp(file + len - 4, ".bck") == 0 && six(file + len - TAIL) &&
           known(ctx, file, len - TAIL);
}

enum name_class name_classify(const char *file, key_known_fn *known, void *ctx)
{
    char raw[TREE_NAME_MAX + 1];
    size_t len = strlen(file), n;
    const char *dot = strrchr(file, '.');
    if (file[0] == '.' || file[0] == '#' || file[len - 1] == '~')
        return NAME_HELPER;
    if (!dot)
        return known_dotless(file) ? NAME_HELPER : NAME_STRAY;
    if (helper_suffix(dot + 1) && known(ctx, file, (size_t)(dot - file)))
        return NAME_HELPER;
    if (is_helix(file, len, known, ctx))
        return NAME_HELPER;
    if (name_decode(file, raw, &n) < 0 || !key_valid(raw, n))
        return NAME_INVALID;
    return NAME_KEY;
}

bool name_typed(const char *file, char key[TREE_NAME_MAX + 1], struct typed *ret)
{
    const char *colon = strrchr(file, ':');
    if (!colon || colon == file || !type_by_name(colon + 1, strlen(colon + 1), ret))
        return false;
    *(char *)mempcpy(key, file, (size_t)(colon - file)) = '\0';
    return true;
}
