/* SPDX-License-Identifier: MIT */
/*
 * Treats arbitrary bytes as the journal of an in-place edit, unchanged and with valid checksums,
 * beside a model of zeros. A journal that is complete can be applied, and changes no byte outside
 * its rows.
 *
 *     0  u8: 1: make the checksums valid    1  u8: size of the model, / 8 KiB
 *     2  u16: number of bytes in the journal after the rest of the input, / 8
 *     4  the first 56 bytes of the journal; the rest of the input is placed where these bytes say
 *        that the rows begin
 */
#include "fuzz.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "edit/journal.h"

enum { HEAD = 56, ROW = 32, MOST = 4 << 20 };

/* A directory with a model and its journal. */
static struct {
    int model, journal;
    bool gone; /* the journal was removed */
} dir;

static int is_file(int fd, struct stat *ret)
{
    int r = sys_libc.fstat(&sys_libc, fd, ret);
    ret->st_nlink = 1; /* a file in memory has no links */
    return r;
}

static int stat_open(const struct sys *s, int fd, struct stat *ret)
{
    (void)s;
    return is_file(fd, ret);
}

static int stat_named(const struct sys *s, int at, const char *name, struct stat *ret)
{
    (void)s, (void)at, (void)name;
    return dir.gone ? -ENOENT : is_file(dir.journal, ret);
}

static int open_named(const struct sys *s, int at, const char *name, int flags, mode_t mode)
{
    (void)s, (void)at, (void)name, (void)flags, (void)mode;
    return dir.gone ? -ENOENT : dup(dir.journal);
}

static int remove_named(const struct sys *s, int at, const char *name)
{
    (void)s, (void)at, (void)name;
    dir.gone = true;
    return 0;
}

static int no_sync(const struct sys *s, int fd)
{
    (void)s, (void)fd;
    return 0;
}

static uint8_t *read_file(int fd, size_t *n)
{
    struct stat st;
    FUZZ_CHECK(is_file(fd, &st) == 0);
    *n = (size_t)st.st_size;
    uint8_t *bytes = malloc(*n + 1);
    FUZZ_CHECK(bytes && sys_read_all(&sys_libc, fd, bytes, *n, 0) == 0);
    return bytes;
}

/* Set the checksums that a writer of these rows would have stored. The old model's bytes are
 * zeros. */
static void seal(uint8_t *b, size_t n)
{
    static const uint8_t zeros[JOURNAL_SECTOR];
    const uint64_t name = get_u32(b + 8, false), rows = get_u64(b + 32, false),
                   at = get_u64(b + 40, false), before = get_u64(b + 16, false);
    if (rows > 1000 || name > 1000 || at > n || rows * ROW + name > n - at)
        return;
    uint64_t table = at + rows * ROW + name;
    for (uint64_t i = 0; i < rows; i++) {
        uint8_t *row = b + at + i * ROW;
        const uint64_t lo = get_u64(row, false), len = get_u64(row + 8, false),
                       src = get_u64(row + 16, false);
        if (len > MOST || src > n || len > n - src)
            return;
        const uint64_t begin = table, size = (len + 511) / 512 * 8;
        if (table > n || size > n - table)
            return;
        for (uint64_t k = 0; k < len; k += 512, table += 8) {
            uint64_t had = lo > before ? 0 : within_u64(lo + k, min_u64(512, len - k), before);
            put_u64(b + table, had ? xxh64(0, zeros, (size_t)had) : 0, false);
        }
        put_u64(row + 24, xxh64(xxh64(0, b + begin, (size_t)size), b + src, (size_t)len), false);
    }
    put_u64(b + 48, xxh64(xxh64(0, b, 48), b + at, (size_t)(rows * ROW + name)), false);
}

static void make_files(const uint8_t *data, size_t size)
{
    const uint64_t at = get_u64(data + 4 + 40, false), rest = size - 4 - HEAD;
    uint64_t n = at < MOST && rest < MOST ? max_u64(at + rest, HEAD) : HEAD;
    n = min_u64(n + get_uint(data + 2, 2, false) * 8, MOST);
    uint8_t *b = calloc(1, (size_t)n);
    FUZZ_CHECK(b);
    memcpy(b, data + 4, HEAD);
    for (uint64_t i = 65536; i < n; i += 700) /* new bytes */
        b[i] = (uint8_t)(i / 700 % 5);
    if (at < n)
        memcpy(b + at, data + 4 + HEAD, (size_t)min_u64(rest, n - at));
    if (data[0] & 1)
        seal(b, (size_t)n);
    dir.gone = false;
    dir.journal = memfd_create("journal", MFD_CLOEXEC);
    dir.model = memfd_create("model", MFD_CLOEXEC);
    FUZZ_CHECK(dir.journal >= 0 && dir.model >= 0);
    FUZZ_CHECK(sys_write_all(&sys_libc, dir.journal, b, (size_t)n, 0) == 0);
    FUZZ_CHECK(ftruncate(dir.model, (off_t)data[1] << 13) == 0);
    free(b);
}

/* Check that bytes outside the rows are unchanged; the old model was all zeros. */
static void check_rest(const struct journal *j, const uint8_t *now, size_t n)
{
    uint64_t at = 0;
    for (size_t i = 0; i <= j->n; i++) {
        const uint64_t end = i < j->n ? j->row[i].at : n;
        FUZZ_CHECK(at <= end && end <= n);
        for (; at < end; at++)
            FUZZ_CHECK(now[at] == 0);
        at = i < j->n ? end + j->row[i].n : n;
    }
}

/* Takes ownership of j. */
static void check_redo(struct edit_file *f, struct journal *j)
{
    struct journal again;
    enum journal_state found;
    size_t n;
    FUZZ_CHECK(journal_settle(f, false, &found, NULL) == 0 && found == JOURNAL_REDO && dir.gone);
    uint8_t *now = read_file(dir.model, &n);
    FUZZ_CHECK(n == j->after);
    check_rest(j, now, n);
    dir.gone = false;
    FUZZ_CHECK(journal_load(f, &again, NULL) == 0 && again.state == JOURNAL_DONE);
    journal_free(&again);
    journal_free(j);
    free(now);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sys sys = sys_libc;
    struct err e = {0};
    struct journal j;
    if (size < 4 + HEAD)
        return 0;
    sys.fstat = stat_open;
    sys.fstatat = stat_named;
    sys.openat = open_named;
    sys.unlinkat = remove_named;
    sys.fsync = no_sync;
    make_files(data, size);
    struct edit_file f = {.sys = &sys, .fd = dir.model, .dir = -1, .name = "m", .locked = true};
    int r = journal_load(&f, &j, &e);
    FUZZ_CHECK(r == 0 || (r == -ESTALE && e.msg[0]));
    if (r == 0 && j.state == JOURNAL_REDO)
        check_redo(&f, &j);
    else
        journal_free(&j);
    (void)close(dir.model);
    (void)close(dir.journal);
    return 0;
}
