/* SPDX-License-Identifier: MIT */
/* Makes and reads the model of a script; holds copies of it, stops the clock, and keeps the log: see
 * script_run.h. */
#include "script_run.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "gguf/value.h"
#include "text/text.h"
#include "quant/f16.h"

#define FIRST "model-00001-of-00002.gguf"
#define SECOND "model-00002-of-00002.gguf"

/* Size of the tensor `big` of a large model, which has no z. */
#define LARGE_SIZE ((size_t)66 << 20)

/* ---- make ---- */

static void put_split(struct build *b, unsigned no, unsigned tensors)
{
    build_num(b, "split.no", GGUF_U16, no);
    build_num(b, "split.tensors.count", GGUF_I32, tensors);
    build_num(b, "split.count", GGUF_U16, 2);
}

static struct content finish(struct build *b)
{
    struct content i;
    i.bytes = build_finish(b, &i.n);
    return i;
}

static struct content make_second(unsigned tensors)
{
    uint8_t dashes[9001];
    memset(dashes, '-', sizeof(dashes));
    struct build b = build_of(3, false);
    put_split(&b, 1, tensors);
    build_tensor(&b, tensors > 2 ? "other" : "b", I8, SHAPE(sizeof(dashes)), dashes,
                 sizeof(dashes));
    return finish(&b);
}

static void put_tensors(struct build *b, bool large)
{
    uint8_t values[24];
    for (unsigned i = 0; i < 6; i++)
        put_u32(values + (size_t)4 * i, f32_bits((float)(i + 1)), b->fmt.big);
    build_tensor(b, "a", I8, SHAPE(8), "abcdefgh", 8);
    build_tensor(b, "b", F32, SHAPE(3, 2), values, 24);
    build_tensor(b, "c", I8, SHAPE(4), "wxyz", 4);
    size_t n = large ? LARGE_SIZE : 20000;
    CLEANUP(free_it) uint8_t *dots = malloc(n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(dots);
    memset(dots, '.', n);
    build_tensor(b, large ? "big" : "z", I8, SHAPE(n), dots, n);
}

void script_model_make(struct run *r, unsigned how)
{
    bool split = how & SCRIPT_SPLIT;
    struct build b = build_of(3, false);
    build_text(&b, "general.architecture=test|a.name=one|a.count:u32=7|a.other:u32=8|"
                   "a.list:array=i32[1,2,3]");
    if (how & SCRIPT_DEEP)
        build_text(&b, "a.deep:array=array[u8[1,2],u8[3]]");
    const unsigned tensors = how & SCRIPT_TENSORS ? 5 : 2;
    const size_t second = how & SCRIPT_LARGE ? LARGE_SIZE : 9001;
    if (split)
        put_split(&b, 0, tensors);
    if (how & SCRIPT_TENSORS)
        put_tensors(&b, how & SCRIPT_LARGE);
    else
        build_tensor(&b, "a", F32, SHAPE(5), NULL, 20);
    if (!split && !(how & SCRIPT_TENSORS))
        build_tensor(&b, "b", I8, SHAPE(second), NULL, second);
    r->old = finish(&b);
    make_place(&r->place, &r->old);
    if (!split)
        return;
    r->other = make_second(tensors);
    put_file(r->place.dir, SECOND, r->other.bytes, r->other.n);
    (void)snprintf(r->place.model, sizeof(r->place.model), "%s/" FIRST, r->place.folder);
    CU_ASSERT_EQUAL_FATAL(renameat(r->place.dir, NAME, r->place.dir, FIRST), 0);
}

void script_model_drop(struct run *r)
{
    drop_place(&r->place);
    free(r->old.bytes);
    free(r->other.bytes);
}

/* ---- read back ---- */

static void put_key(const struct gguf *g, const struct gguf_kv *kv, struct buf *out)
{
    char type[GGUF_TYPE_NAME_MAX];
    struct gguf_value v = gguf_value(g, kv);
    buf_printf(out, "%.*s:%s=", (int)kv->key_len, gguf_key(g, kv), gguf_type_name(&v, type));
    size_t from = out->len;
    text_value(out, &v);
    if (out->len > from) /* replace the last newline */
        out->len--;
    for (size_t i = from; i < out->len; i++)
        if (out->data[i] == '\n')
            out->data[i] = ',';
    buf_char(out, ' ');
}

bool script_model_keys(const void *bytes, size_t n, struct buf *out)
{
    struct gguf *g = NULL;
    struct source s = source_mem(bytes, n);
    if (gguf_parse(&s, 0, &g, NULL) < 0)
        return false;
    const uint32_t first = gguf_find_key(g, "general.architecture", 20);
    for (uint32_t i = 0; i < g->n_kv; i++)
        if (i != first && !edit_key_is_own(g, i))
            put_key(g, &g->kv[i], out);
    buf_char(out, '\0');
    bool good = g->anomalies == 0 && first == 0;
    gguf_free(g);
    return good && buf_error(out) == 0;
}

static bool same_tensors(const struct content *a, const struct content *b)
{
    struct gguf *ga = gguf_in(a->bytes, a->n), *gb = gguf_in(b->bytes, b->n);
    bool good = ga->n_tensors == gb->n_tensors;
    for (uint32_t i = 0; good && i < ga->n_tensors; i++)
        good = ga->tensor[i].nbytes == gb->tensor[i].nbytes &&
               memcmp(a->bytes + ga->tensor[i].off, b->bytes + gb->tensor[i].off,
                      (size_t)ga->tensor[i].nbytes) == 0;
    gguf_free(ga);
    gguf_free(gb);
    return good;
}

void script_model_brief(struct buf *out, const void *bytes, size_t n)
{
    const char *text = bytes;
    for (size_t i = 0, same; i < n; i += same) {
        for (same = 1; i + same < n && text[i + same] == text[i];)
            same++;
        if (same > 8)
            buf_printf(out, "%c{%zu}", text[i], same);
        else
            buf_add(out, text + i, same);
    }
}

static void put_tensor(const struct gguf *g, const struct gguf_tensor *t, const uint8_t *bytes,
                       struct buf *out)
{
    const struct quant_type *type = gguf_type(t);
    buf_printf(out, "%.*s:%s:", (int)t->name_len, gguf_name(g, t), type ? type->name : "unknown");
    for (uint32_t i = t->n_dims; i-- > 0;)
        buf_printf(out, "%llu%s", (unsigned long long)gguf_dim(g, t, i), i ? "x" : "=");
    if (t->type_id == I8)
        script_model_brief(out, bytes, (size_t)t->nbytes);
    else if (t->type_id != F32)
        buf_printf(out, "%llu", (unsigned long long)t->nbytes);
    for (uint64_t at = 0; t->type_id == F32 && at < t->nbytes; at += 4)
        buf_printf(out, "%s%g", at ? "," : "",
                   (double)f32_from_bits(get_u32(bytes + at, g->fmt.big)));
    buf_char(out, ' ');
}

static bool put_file_tensors(const struct content *file, struct buf *out)
{
    struct gguf *g = NULL;
    struct source s = source_mem(file->bytes, file->n);
    if (gguf_parse(&s, 0, &g, NULL) < 0)
        return false;
    for (uint32_t i = 0; i < g->n_tensors; i++)
        put_tensor(g, &g->tensor[i], (const uint8_t *)file->bytes + g->tensor[i].off, out);
    bool good = g->anomalies == 0;
    gguf_free(g);
    return good;
}

static struct content read_back(const struct run *r, const char *name)
{
    struct content i;
    i.bytes = get_file(r->place.dir, name, &i.n);
    return i;
}

struct content script_model_file(const struct run *r)
{
    return read_back(r, r->other.bytes ? FIRST : NAME);
}

static bool put_all_tensors(const struct content *first, const struct content *second,
                            struct buf *out)
{
    bool good = put_file_tensors(first, out) && (!second->bytes || put_file_tensors(second, out));
    buf_char(out, '\0');
    return good && buf_error(out) == 0;
}

bool script_model_tensors(const struct run *r, struct buf *out)
{
    struct content first = script_model_file(r), second = {0};
    if (r->other.bytes)
        second = read_back(r, SECOND);
    bool good = put_all_tensors(&first, &second, out);
    free(first.bytes);
    free(second.bytes);
    return good;
}

void script_model_before(const struct run *r, struct buf *out)
{
    (void)(r->opt.tensors ? put_all_tensors(&r->old, &r->other, out)
                          : script_model_keys(r->old.bytes, r->old.n, out));
}

bool script_model_whole(const struct run *r)
{
    bool split = r->other.bytes != NULL, good = files_in(r->place.dir) == 1U + split;
    if (r->opt.tensors)
        return good;
    struct content now = script_model_file(r);
    good = good && same_tensors(&r->old, &now);
    free(now.bytes);
    return good && (!split || file_has(r->place.dir, SECOND, r->other.bytes, r->other.n));
}

/* ---- copies held and failed, a full disk ---- */

static struct script_gate gate;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

struct script_gate *script_gate_open(void)
{
    (void)pthread_mutex_lock(&lock);
    return &gate;
}

void script_gate_close(void)
{
    (void)pthread_cond_broadcast(&changed);
    (void)pthread_mutex_unlock(&lock);
}

bool script_copies_held(void)
{
    struct timespec until;
    int r = 0;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_MOST;
    (void)pthread_mutex_lock(&lock);
    while (gate.held == 0 && r == 0)
        r = pthread_cond_timedwait(&changed, &lock, &until);
    (void)pthread_mutex_unlock(&lock);
    return r == 0;
}

/* Replaces the C library's function. A copy that was held then moves only one byte, so it is not
 * finished yet. */
ssize_t copy_file_range(int from, off64_t *from_off, int to, off64_t *to_off, size_t n,
                        unsigned flags)
{
    (void)pthread_mutex_lock(&lock);
    const bool held = gate.hold;
    gate.held += held;
    (void)pthread_cond_broadcast(&changed);
    while (gate.hold)
        (void)pthread_cond_wait(&changed, &lock);
    gate.held -= held;
    const int error = held && gate.spoilt ? gate.spoilt : gate.error;
    (void)pthread_mutex_unlock(&lock);
    if (error) {
        errno = error;
        return -1;
    }
    return syscall(SYS_copy_file_range, from, from_off, to, to_off, held ? 1 : n, flags);
}

/* True if a file has no name, as the log of drafts. */
static bool is_log(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_nlink == 0;
}

/* True if a file is a model itself, which is written in place. */
static bool is_model(int fd)
{
    char link[32], path[PATH_MAX];
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof(path));
    return n > 5 && memcmp(path + n - 5, ".gguf", 5) == 0;
}

/* On a full disk, drafts are not stored. */
ssize_t pwrite(int fd, const void *src, size_t n, off_t off)
{
    (void)pthread_mutex_lock(&lock);
    const bool full = gate.full && is_log(fd);
    const bool ends = gate.torn == 2 && is_model(fd);
    if (gate.torn == 1 && is_model(fd)) {
        gate.torn = 2;
        n = ((size_t)off + n / 2) / 4096 * 4096 - (size_t)off; /* in the middle of a large write */
    }
    (void)pthread_mutex_unlock(&lock);
    if (!full && !ends)
        return syscall(SYS_pwrite64, fd, src, n, off);
    errno = ENOSPC;
    return -1;
}

int fsync(int fd)
{
    (void)pthread_mutex_lock(&lock);
    const int error = is_model(fd) || is_log(fd) ? gate.error : 0;
    (void)pthread_mutex_unlock(&lock);
    if (!error)
        return (int)syscall(SYS_fsync, fd);
    errno = error;
    return -1;
}

int fstatvfs(int fd, struct statvfs *ret)
{
    struct statfs st;
    if (fstatfs(fd, &st) < 0)
        return -1;
    (void)pthread_mutex_lock(&lock);
    if (gate.full)
        st.f_bfree = st.f_bavail = 0;
    (void)pthread_mutex_unlock(&lock);
    *ret = (struct statvfs){.f_bsize = (unsigned long)st.f_bsize,
                            .f_frsize = (unsigned long)st.f_frsize,
                            .f_blocks = st.f_blocks,
                            .f_bfree = st.f_bfree,
                            .f_bavail = st.f_bavail};
    return 0;
}

/* ---- the time ---- */

/* A clock that runs late must not go below zero on a machine that was just started. */
enum { STARTED_BEFORE = 1000000 }; /* s */

atomic_long script_ahead, script_still;

/* Replaces the C library's function. */
int clock_gettime(clockid_t clock, struct timespec *ret)
{
    int r = (int)syscall(SYS_clock_gettime, clock, ret);
    if (r < 0 || clock != CLOCK_MONOTONIC)
        return r;
    ret->tv_sec += STARTED_BEFORE;
    if (atomic_load(&script_still))
        *ret = (struct timespec){atomic_load(&script_still), 0};
    ret->tv_sec += atomic_load(&script_ahead);
    return 0;
}

/* Replaces the C library's function. */
int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *until)
{
    struct timespec t = {until->tv_sec > STARTED_BEFORE ? until->tv_sec - STARTED_BEFORE : 0,
                         until->tv_nsec};
    int (*wait)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
    *(void **)&wait = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    return wait(cond, mutex, clock, &t);
}

/* ---- the log ---- */

static char lines[16384]; /* the newest lines that fit */
static size_t filled;
static bool warned;

void script_log(int priority, const char *line)
{
    (void)pthread_mutex_lock(&lock);
    size_t n = strlen(line);
    if (n >= sizeof(lines) - filled)
        filled = 0;
    if (n < sizeof(lines)) {
        memcpy(lines + filled, line, n + 1);
        filled += n;
    }
    warned |= priority <= LOG_WARNING;
    (void)pthread_mutex_unlock(&lock);
}

void script_logged(struct run *r, const char *text)
{
    (void)pthread_mutex_lock(&lock);
    if (text ? !strstr(lines, text + (*text == '!')) != (*text == '!') : warned)
        script_fail(r, "the log has \"%s\"", lines);
    if (text) {
        filled = 0;
        lines[0] = '\0';
        warned = false;
    }
    (void)pthread_mutex_unlock(&lock);
}

void script_calm(void)
{
    struct script_gate *g = script_gate_open();
    *g = (struct script_gate){.held = g->held};
    filled = 0;
    lines[0] = '\0';
    warned = false;
    atomic_store(&script_still, 0);
    atomic_store(&script_ahead, 0);
    script_gate_close();
}
