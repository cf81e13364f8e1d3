/* SPDX-License-Identifier: MIT */
/* Classifies new names in metadata/ (names.h). */
#include "live/names.h"

#include <ctype.h>
#include <string.h>

#include "base/bytes.h"
#include "gguf/value.h"
#include "text/name.h"

static bool all(const char *s, size_t n, int (*is)(int))
{
    while (n > 0 && is((unsigned char)*s)) {
        s++;
        n--;
    }
    return n == 0;
}

/* True if the first n bytes are the name of a key. */
static bool begins_with_key(const char *name, size_t n, const struct name_keys *keys)
{
    char key[TREE_NAME_MAX + 1];
    *(char *)mempcpy(key, name, n) = '\0';
    return keys->has(keys->of, key);
}

static int is_tempfile(int c)
{
    return isalnum(c) || c == '_';
}

/* True for names that mkstemp(3) makes for sed -i (sedXXXXXX), Python (tmpXXXXXXXX, X is a letter,
 * digit or underscore) and perl -i (eight letters or digits). */
static bool is_mkstemp(const char *s, size_t n)
{
    if (n == 8 && all(s, n, isalnum))
        return true;
    return n >= 6 && (strncmp(s, "tmp", 3) == 0 || strncmp(s, "sed", 3) == 0) &&
           all(s, n, is_tempfile);
}

/* Classify a name with a dot by its suffix. */
static enum name_class class_of_suffix(const char *name, enum name_way way,
                                       const struct name_keys *keys)
{
    enum { BACKUPS = 3 };
    static const char *const known[] = {"tmp", "new", "swp", "bak", "orig", "old", "save"};
    const char *dot = strrchr(name, '.');
    const size_t n = (size_t)(dot - name);
    size_t i = 0;
    while (i < COUNT(known) && strcmp(known[i], dot + 1) != 0)
        i++;
    if (i < COUNT(known) && begins_with_key(name, n, keys))
        return i < BACKUPS || way == NAME_ASIDE ? NAME_HELPER : NAME_INVALID;
    if (strcmp(dot, ".bck") == 0 && n > 6 && all(dot - 6, 6, isalnum) &&
        begins_with_key(name, n - 6, keys)) /* helix */
        return NAME_HELPER;
    return NAME_KEY;
}

enum name_class name_classify(const char *name, enum name_way way, const struct name_keys *keys)
{
    char key[TREE_NAME_MAX + 1];
    size_t len = strlen(name);
    if (name_is_fleeting(name))
        return NAME_HELPER;
    if (!strchr(name, '.')) /* vim probes 4913 */
        return all(name, len, isdigit) || (way == NAME_MKSTEMP && is_mkstemp(name, len))
                   ? NAME_HELPER
                   : NAME_INVALID;
    const enum name_class class = class_of_suffix(name, way, keys);
    if (class != NAME_KEY)
        return class;
    return name_decode(name, key, &len) == 0 && key_valid(key, len) ? NAME_KEY : NAME_INVALID;
}

bool name_is_fleeting(const char *name)
{
    return name[0] == '.' || name[0] == '#' || name[strlen(name) - 1] == '~';
}

bool name_is_temporary(const char *name, const struct name_keys *keys)
{
    size_t n = strlen(name);
    if (n <= 7 || !all(name + n - 6, 6, isalnum))
        return false;
    n -= 6;
    return begins_with_key(name, n, keys) ||
           (name[n - 1] == '.' && begins_with_key(name, n - 1, keys));
}
