/* SPDX-License-Identifier: MIT */
/* Captures standard error: see catch.h. */
#include "mount/catch.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"

struct caught catch_begin(void)
{
    struct caught c = {.stderr_fd = -1, .file = memfd_create("ggufs-stderr", MFD_CLOEXEC)};
    if (c.file < 0)
        return c;
    (void)fflush(stderr);
    c.stderr_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    if (c.stderr_fd >= 0)
        (void)dup2(c.file, STDERR_FILENO);
    return c;
}

/* The last line of a text, without the "fuse: " before it. */
static const char *last_line(char *all)
{
    static const char *const writers[] = {"ggufs: ", "fuse: ", "fusermount3: "};
    size_t len = strlen(all);
    while (len > 0 && all[len - 1] == '\n')
        all[--len] = '\0';
    const char *line = strrchr(all, '\n');
    line = line ? line + 1 : all;
    for (size_t i = 0; i < sizeof(writers) / sizeof(writers[0]); i++)
        if (strncmp(line, writers[i], strlen(writers[i])) == 0)
            line += strlen(writers[i]);
    return line;
}

void catch_last(int file, char *dst, size_t size)
{
    char all[2048];
    ssize_t n = file < 0 ? 0 : pread(file, all, sizeof(all) - 1, 0);
    all[n > 0 ? n : 0] = '\0';
    const char *line = last_line(all);
    (void)show_in(dst, size, line, strlen(line));
}

void catch_end(struct caught *c, char *dst, size_t size)
{
    if (c->stderr_fd >= 0) {
        (void)fflush(stderr);
        (void)dup2(c->stderr_fd, STDERR_FILENO);
        (void)close(c->stderr_fd);
    }
    catch_last(c->file, dst, size);
    if (c->file >= 0)
        (void)close(c->file);
}
