/* SPDX-License-Identifier: MIT */
/* Sources of bytes: see source.h. */
#include "gguf/source.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/sys.h"
#include "gguf/sniff.h"

static int read_mem(const struct source *s, uint64_t off, void *dst, size_t n)
{
    memcpy(dst, (const uint8_t *)s->mem + off, n);
    return 0;
}

struct source source_mem(const void *bytes, size_t n)
{
    return (struct source){.size = n, .read = read_mem, .mem = bytes, .fd = -1};
}

static int read_fd(const struct source *s, uint64_t off, void *dst, size_t n)
{
    return sys_read_all(&sys_libc, s->fd, dst, n, off);
}

int source_fd(int fd, struct source *ret, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_set(e, -errno, "cannot stat: %s", strerror(errno));
    if (S_ISDIR(st.st_mode))
        return sniff_folder(e);
    if (!S_ISREG(st.st_mode))
        return err_set(e, -EINVAL, "is not a regular file");
    *ret = (struct source){.size = (uint64_t)st.st_size, .read = read_fd, .fd = fd};
    return 0;
}
