/* SPDX-License-Identifier: MIT */
/* The list of mounts: see mounts.h. */
#include "mount/mounts.h"

void path_escape(struct buf *out, const char *path)
{
    for (const char *p = path; *p; p++)
        if (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\\')
            buf_printf(out, "\\%03o", (unsigned)(unsigned char)*p);
        else
            buf_char(out, *p);
}

static bool is_octal(const char *p)
{
    for (int i = 0; i < 3; i++)
        if (p[i] < '0' || p[i] > (i ? '7' : '3'))
            return false;
    return true;
}

void path_unescape(char *text)
{
    char *to = text;
    for (const char *p = text; *p; to++)
        if (*p == '\\' && is_octal(p + 1)) {
            *to = (char)((p[1] - '0') << 6 | (p[2] - '0') << 3 | (p[3] - '0'));
            p += 4;
        } else {
            *to = *p++;
        }
    *to = '\0';
}
