/* SPDX-License-Identifier: MIT */
/* Mapped files on other machines: see far.h. */
#include "base/far.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include "base/bytes.h"
#include "base/count.h"

/* The most the kernel takes at once: its usual readahead, which a file system may raise but not lower. */
#define PIECE ((uint64_t)128 << 10)
/* How far the requests of one readahead overtake each other. */
#define SLACK ((uint64_t)2 << 20)

/* As statfs(2) returns them; linux/magic.h has only some. */
static const uint32_t far_types[] = {
    0x65735546, /* FUSE: sshfs, rclone, hf-mount, JuiceFS; virtiofs */
    0x00006969, /* NFS */
    0x0000517b, /* SMB */
    0xff534d42, /* CIFS */
    0xfe534d42, /* SMB 2 and 3 */
    0x01021997, /* 9p */
    0x00c36400, /* Ceph */
    0x5346414f, /* AFS, of OpenAFS */
    0x6b414653, /* AFS, of the kernel */
    0x73757245, /* Coda */
    0x0bd00bd0, /* Lustre */
    0x20030528, /* OrangeFS */
    0x47504653, /* GPFS */
    0x19830326, /* BeeGFS */
    0x786f4256, /* shared directories of VirtualBox */
};

bool far_file(int fd)
{
    struct statfs st;
    if (fstatfs(fd, &st) < 0)
        return true;
    for (size_t i = 0; i < COUNT(far_types); i++)
        if ((uint32_t)st.f_type == far_types[i])
            return true;
    return false;
}

void far_exact(int fd, bool exact)
{
    (void)posix_fadvise(fd, 0, 0, exact ? POSIX_FADV_RANDOM : POSIX_FADV_NORMAL);
}

void far_init(const struct map *m)
{
    if (m->size > 0)
        (void)madvise((void *)(uintptr_t)m->data, (size_t)m->size, MADV_RANDOM);
}

static bool continues(uint64_t next, uint64_t off)
{
    return (off > next ? off - next : next - off) <= SLACK;
}

uint64_t far_want(struct far_run *r, const struct map *m, uint64_t off, uint64_t n, uint64_t end)
{
    if (off > m->size || n > m->size - off)
        return off;
    uint64_t next = atomic_load(&r->next), upto = atomic_load(&r->upto), ask = off + n;
    uint64_t have = continues(next, off) ? atomic_load(&r->have) : 0;
    uint64_t ahead = min_u64(have, FAR_AHEAD);
    if (have == 0)
        next = upto = off;
    next = max_u64(next, off + n);
    if (upto < next + ahead / 2)
        upto = ask = max_u64(off + n, min_u64(next + ahead, min_u64(end, m->size)));
    atomic_store(&r->next, next);
    atomic_store(&r->have, have + n);
    atomic_store(&r->upto, upto);
    for (uint64_t at = off; at < ask; at += PIECE)
        (void)posix_fadvise(m->fd, (off_t)at, (off_t)min_u64(PIECE, ask - at), POSIX_FADV_WILLNEED);
    return ask;
}
