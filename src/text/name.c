/* SPDX-License-Identifier: MIT */
/* Key and tensor names as file names: see name.h. */
#include "text/name.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

/* Length of "%~" and 16 hex digits. */
#define CUT_MARK 18

static bool name_plain(uint8_t c)
{
    return c >= 0x20 && c != 0x7f && c != '%' && c != '/';
}

static const char hex[] = "0123456789ABCDEF";

/* Encode as many bytes of the name as fit without cutting an escape, and return how many did. */
static size_t encode_upto(const uint8_t *p, size_t n, char *dst, size_t *at, size_t room)
{
    bool dots = (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.');
    size_t i = 0;
    for (*at = 0; i < n; i++) {
        bool escape = dots || !name_plain(p[i]);
        if (*at + (escape ? 3 : 1) > room)
            break;
        dst[(*at)++] = escape ? '%' : (char)p[i];
        if (escape) {
            dst[(*at)++] = hex[p[i] >> 4];
            dst[(*at)++] = hex[p[i] & 15];
        }
    }
    return i;
}

size_t name_encode(const void *name, size_t n, char dst[TREE_NAME_MAX + 1])
{
    size_t at;
    if (n == 0) {
        memcpy(dst, "%", 2);
        return 1;
    }
    if (encode_upto(name, n, dst, &at, TREE_NAME_MAX) < n) {
        (void)encode_upto(name, n, dst, &at, TREE_NAME_MAX - CUT_MARK);
        (void)snprintf(dst + at, CUT_MARK + 1, "%%~%016" PRIx64, xxh64(0, name, n));
        return at + CUT_MARK;
    }
    dst[at] = '\0';
    return at;
}

static int name_digit(char c)
{
    const char *at = c ? strchr(hex, c) : NULL;
    return at ? (int)(at - hex) : -1;
}

/* Undo the escapes. Returns the length, or -1 if an escape is malformed. */
static int unescape(const char *file, char *dst)
{
    int n = 0;
    for (size_t i = 0; file[i]; i++) {
        char c = file[i];
        if (c == '%') {
            int high = name_digit(file[i + 1]);
            int low = high < 0 ? -1 : name_digit(file[i + 2]);
            if (low < 0)
                return -1;
            c = (char)(high << 4 | low);
            i += 2;
        }
        dst[n++] = c;
    }
    return n;
}

int name_decode(const char *file, char dst[TREE_NAME_MAX + 1], size_t *ret)
{
    char again[TREE_NAME_MAX + 1], raw[TREE_NAME_MAX + 1] = "";
    size_t len = strlen(file);
    if (len > TREE_NAME_MAX)
        return -ENOENT;
    if (len > CUT_MARK && file[len - CUT_MARK] == '%' && file[len - CUT_MARK + 1] == '~')
        return -ENAMETOOLONG;
    int n = strcmp(file, "%") == 0 ? 0 : unescape(file, raw);
    if (n < 0)
        return -ENOENT;
    (void)name_encode(raw, (size_t)n, again);
    if (strcmp(again, file) != 0)
        return -ENOENT;
    memcpy(dst, raw, (size_t)n);
    *ret = (size_t)n;
    return 0;
}
