/* SPDX-License-Identifier: MIT */
/* Mapped files and the guard against pages that disappear: see map.h. */
#include "base/map.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <ucontext.h>

#include "base/bytes.h"

int map_open(struct map *m, int fd, uint64_t size)
{
    *m = (struct map){.fd = fd};
    if (size == 0)
        return 0;
    void *p = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return -errno;
    m->data = p;
    m->size = size;
    return 0;
}

void map_close(struct map *m)
{
    if (m->data)
        (void)munmap((void *)(uintptr_t)m->data, (size_t)m->size);
    *m = (struct map){.fd = -1};
}

int map_check(const struct map *m, uint64_t end)
{
    struct stat st;
    if (fstat(m->fd, &st) < 0 || st.st_size < 0)
        return -EIO;
    return (uint64_t)st.st_size < end ? -EIO : 0;
}

/* Where the thread's guarded read continues after SIGBUS; NULL outside of map_guard(). */
static _Thread_local sigjmp_buf *volatile escape;

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    const ucontext_t *before = context;
    /* Only a fault (si_code > 0), not a signal sent by a process, ends a guarded read. */
    if (escape && info->si_code > 0) {
        /*
         * The jump does not restore the signal mask, and the handler's mask must not stay in force.
         */
        (void)pthread_sigmask(SIG_SETMASK, &before->uc_sigmask, NULL);
        siglongjmp(*escape, 1);
    }
    (void)signal(sig, SIG_DFL);
    (void)raise(sig);
}

int map_guard(int (*fn)(void *arg), void *arg)
{
    sigjmp_buf here;
    /* Saving the mask would cost a system call each time; the handler restores it instead. */
    if (sigsetjmp(here, 0)) {
        escape = NULL;
        return -EIO;
    }
    escape = &here;
    int r = fn(arg);
    escape = NULL;
    return r;
}

struct copying {
    void *dst;
    const void *src;
    size_t n;
};

static int copy_guarded(void *arg)
{
    const struct copying *c = arg;
    memcpy(c->dst, c->src, c->n);
    return 0;
}

int map_copy(void *dst, const void *src, size_t n)
{
    struct copying c = {dst, src, n};
    return n > 0 ? map_guard(copy_guarded, &c) : 0;
}

int map_guard_init(void)
{
    struct sigaction sa = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};
    (void)sigemptyset(&sa.sa_mask);
    return sigaction(SIGBUS, &sa, NULL) < 0 ? -errno : 0;
}

/* ---- files on other machines ---- */

/* The largest request that the kernel carries out at once. It is the kernel's usual readahead,
 * which a file system may raise but not lower. */
#define PIECE ((uint64_t)128 << 10)
/* How far the requests of one readahead may overtake each other. */
#define SLACK ((uint64_t)2 << 20)

/* Types of file systems as statfs(2) returns them; linux/magic.h has only some of them. */
static const uint32_t far_types[] = {
    0x65735546, /* FUSE: sshfs, rclone, hf-mount, JuiceFS; virtiofs */
    0x00006969, /* NFS */
    0x0000517b, /* SMB */
    0xff534d42, /* CIFS */
    0xfe534d42, /* SMB 2 and 3 */
    0x01021997, /* 9p */
    0x00c36400, /* Ceph */
    0x5346414f, /* AFS in OpenAFS */
    0x6b414653, /* AFS in the kernel */
    0x73757245, /* Coda */
    0x0bd00bd0, /* Lustre */
    0x20030528, /* OrangeFS */
    0x47504653, /* GPFS */
    0x19830326, /* BeeGFS */
    0x786f4256, /* VirtualBox's shared directories */
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

uint64_t far_want(struct far_run *r, const struct map *m, uint64_t off, uint64_t n, uint64_t end)
{
    if (off > m->size || n > m->size - off)
        return off;
    uint64_t next = atomic_load(&r->next), upto = atomic_load(&r->upto), ask = off + n;
    bool continues = (off > next ? off - next : next - off) <= SLACK;
    uint64_t have = continues ? atomic_load(&r->have) : 0;
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
