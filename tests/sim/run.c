/* SPDX-License-Identifier: MIT */
/* Runs: see run.h. */
#include "run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alloc.h"
#include "base/bytes.h"
#include "base/lock.h"
#include "build_gguf.h"
#include "hooks.h"
#include "gguf/gguf.h"
#include "kernel.h"
#include "soak.h"

static struct world *world;
static struct kernel kernel;
static struct tree_options options;

/* Writes the coverage of this process, in a build for scripts/coverage. */
extern void __gcov_dump(void) __attribute__((weak));

static _Noreturn void end_now(void)
{
    world->out.hash = sched_hash();
    world->out.steps += sched_steps();
    world->out.ended = true;
    if (__gcov_dump) {
        (void)alloc_disarm(); /* it allocates */
        __gcov_dump();
    }
    _exit(0);
}

static void failed(const char *line)
{
    if (!world->out.failed)
        (void)snprintf(world->out.why, sizeof(world->out.why), "%s", line);
    world->out.failed = true;
    end_now();
}

/* ---- the model ---- */

enum { KEPT = 5, REST = 7, LEFT_MOST = 0, CRASHES = 3 };

/* The values of tensors, which nobody edits. */
static const float floats[REST] = {1, 2, 3, 4, 5, 6, 7};

static const char *const files[] = {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"};

static const char *model_name(const struct world *w)
{
    return w->story.split ? files[0] : "m.gguf";
}

void run_path(const struct world *w, char dst[128])
{
    (void)snprintf(dst, 128, "%s/%s", w->folder, model_name(w));
}

void run_journal(const struct world *w, char dst[128])
{
    (void)snprintf(dst, 128, "%s/.%s.ggufs-journal", w->folder, model_name(w));
}

static uint32_t number_at_first(unsigned key)
{
    return 1000 + TOKEN_FIRST + key;
}

/* Writing in place, or moving the data by whole blocks, needs spare bytes in the header. */
static bool needs_reserve(void)
{
    return world->story.strategy == EDIT_INPLACE;
}

static void add_split(struct build *b, unsigned no)
{
    build_num(b, "split.no", GGUF_U16, no);
    build_num(b, "split.count", GGUF_U16, 2);
    build_num(b, "split.tensors.count", GGUF_I32, 2);
}

/* Writes the second file of a split model, which no edit changes. */
static void make_second(void)
{
    struct build b;
    char path[128];
    b = build_of(3, false);
    add_split(&b, 1);
    build_tensor(&b, "rest", 0, (uint64_t[]){REST}, 1, floats, 4 * REST);
    uint8_t *image = build_finish(&b, &world->second_n);
    (void)snprintf(path, sizeof(path), "%s/%s", world->folder, files[1]);
    if (world->second_n > sizeof(world->second) || !disk_write(path, image, world->second_n))
        sched_fail("the second file cannot be written");
    memcpy(world->second, image, world->second_n);
    free(image);
}

static void check_second(void)
{
    char path[128];
    size_t n = 0;
    (void)snprintf(path, sizeof(path), "%s/%s", world->folder, files[1]);
    uint8_t *bytes = disk_read(path, &n);
    if (!bytes || n != world->second_n || memcmp(bytes, world->second, n) != 0)
        sched_fail("the second file of the model has changed");
    __real_free(bytes);
}

/* Returns how often the story makes this call, or any (""), fail. */
static unsigned failures(const char *call)
{
    unsigned times = 0;
    for (unsigned i = 0; i < world->story.n; i++)
        if (world->story.step[i].word == W_FAIL &&
            (!*call || strcmp(calls[world->story.step[i].call], call) == 0))
            times += world->story.step[i].n3;
    return times;
}

static bool has_step(enum word word)
{
    bool has = false;
    for (unsigned i = 0; i < world->story.n; i++)
        has |= world->story.step[i].word == word;
    return has;
}

static void make_model(void)
{
    struct build b;
    char path[128], text[16];
    size_t n;
    value_t first[KEYS] = {0};
    b = build_of(3, false);
    build_str(&b, "general.architecture", "llama");
    for (unsigned i = 0; i < KEYS_THERE; i++) {
        (void)snprintf(text, sizeof(text), "%u", number_at_first(i));
        if (i % 2)
            build_u32(&b, names[i], number_at_first(i));
        else
            build_str(&b, names[i], text);
    }
    if (needs_reserve()) {
        char spaces[3001];
        memset(spaces, ' ', 3000);
        spaces[3000] = '\0';
        build_str(&b, "ggufs.reserve", spaces);
    }
    build_array(&b, "z.list", GGUF_I32, 2);
    build_item_num(&b, GGUF_I32, 7);
    build_item_num(&b, GGUF_I32, 8);
    if (world->story.split) {
        add_split(&b, 0);
        make_second();
    }
    build_tensor(&b, "keep", 0, (uint64_t[]){KEPT}, 1, floats, 4 * KEPT);
    tensors_begin(world, &b);
    for (unsigned i = 0; i < KEYS_THERE; i++)
        first[i] = value_make(i % 2 ? TYPE_U32 : TYPE_STRING, number_at_first(i));
    struct oracle *o = &world->oracle;
    o->tensors = world->story.tensors;
    o->fails = failures("") || has_step(W_ROOM) || has_step(W_BRIEF);
    o->finishes = failures("") && world->story.strategy != EDIT_COPY;
    o->astray =
        failures("fsync") + failures("rename") > (world->story.features & NO_EXCHANGE ? 0u : 1u);
    oracle_begin(o, first, world->story.commit != LIVE_COMMIT_SYNC);
    uint8_t *image = build_finish(&b, &n);
    run_path(world, path);
    if (!disk_write(path, image, n))
        sched_fail("the model cannot be written");
    free(image);
}

/* Returns a value, or one that no key has. */
static value_t value_in(struct gguf_value v)
{
    char text[16] = "";
    uint64_t n = 0;
    const unsigned type = v.type == GGUF_STRING ? TYPE_STRING
                          : v.type == GGUF_U32  ? TYPE_U32
                          : v.type == GGUF_U64  ? TYPE_U64
                                                : 0;
    if (type == TYPE_STRING && v.len < sizeof(text)) {
        memcpy(text, v.data, (size_t)v.len);
        n = strspn(text, "0123456789") != v.len ? EMPTY + 1
            : v.len                             ? strtoul(text, NULL, 10)
                                                : EMPTY;
    } else if (type) {
        n = get_uint(v.data, gguf_types[v.type].width, false);
    }
    return value_make(n > EMPTY ? 15 : type, n > EMPTY ? 0 : (unsigned)n);
}

static bool has_values(const struct gguf *g, uint32_t i, const char *name, unsigned count,
                       const uint8_t *bytes)
{
    const struct gguf_tensor *t = &g->tensor[i];
    return i < g->n_tensors && gguf_find_tensor(g, name, strlen(name)) == i && t->type_id == 0 &&
           t->n_dims == 1 && t->n_elem == count && memcmp(bytes + t->off, floats, 4 * count) == 0;
}

static struct gguf *parsed(const uint8_t *bytes, size_t n, struct err *e)
{
    const struct source s = source_mem(bytes, n);
    struct gguf *g = NULL;
    if (!bytes)
        (void)err_set(e, -ENOENT, "there is no model");
    else if (gguf_parse(&s, 0, &g, e) == 0 && g->anomalies)
        (void)err_set(e, -EINVAL, "it is not regular");
    return g;
}

void check_model(struct world *w, const uint8_t *bytes, size_t n, bool disk, uint32_t since,
                 value_t ret[KEYS])
{
    static const char list[] = "z.list";
    const char *what = disk ? "the file" : "model.gguf";
    const bool merged = w->story.split && !disk;
    struct err e = {0};
    struct gguf *g = parsed(bytes, n, &e);
    memset(ret, 0, KEYS * sizeof(*ret));
    if (!g && e.code == -ENOMEM) /* the story spares nobody */
        return;
    if (e.code)
        sched_fail("%s: %s", what, e.msg);
    for (unsigned k = 0; k < KEYS; k++) {
        const uint32_t i = gguf_find_key(g, names[k], strlen(names[k]));
        ret[k] = i == UINT32_MAX ? 0 : value_in(gguf_value(g, &g->kv[i]));
    }
    unsigned known = 0;
    for (int t = KEYS; t < REGS && w->story.tensors; t++)
        known += gguf_find_tensor(g, names[t], strlen(names[t])) != UINT32_MAX;
    const uint32_t at = gguf_find_key(g, list, strlen(list));
    if (at == UINT32_MAX || gguf_value(g, &g->kv[at]).count != 2 ||
        memcmp(gguf_value(g, &g->kv[at]).data, "\7\0\0\0\10\0\0\0", 8) != 0 ||
        g->n_tensors != 1u + merged + known || gguf_find_key(g, "general.architecture", 20) != 0 ||
        !has_values(g, 0, "keep", KEPT, bytes) ||
        (merged && !has_values(g, 1, "rest", REST, bytes)))
        sched_fail("%s: what nobody edits has changed", what);
    tensors_look(w, g, bytes, disk, since);
    gguf_free(g);
}

void check_json(const char *text, value_t ret[KEYS])
{
    for (unsigned k = 0; k < KEYS; k++) {
        char head[64], type[16] = "";
        unsigned v = 0;
        (void)snprintf(head, sizeof(head), "\"%s\": {\"type\": \"", names[k]);
        const char *at = strstr(text, head);
        ret[k] = 0;
        if (!at || sscanf(at + strlen(head), "%15[a-z0-9]\", \"value\": %n", type, (int *)&v) != 1)
            continue;
        at += strlen(head) + v;
        v = 0;
        const unsigned is = strcmp(type, "string") == 0 ? TYPE_STRING
                            : strcmp(type, "u32") == 0  ? TYPE_U32
                                                        : TYPE_U64;
        if (strncmp(at, "\"\"", 2) == 0)
            v = EMPTY;
        else if (sscanf(at + (*at == '"'), "%u", &v) != 1 || v >= EMPTY)
            sched_fail("metadata.json: %s is %.20s", names[k], at);
        ret[k] = value_make(is, v);
    }
}

/* ---- beside the model ---- */

static void check_folder(void)
{
    char journal_path[128];
    run_journal(world, journal_path);
    DIR *d = opendir(world->folder);
    for (const struct dirent *e; d && (e = readdir(d));) {
        const char *name = e->d_name;
        bool ours = strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
                    strcmp(name, model_name(world)) == 0 ||
                    (world->story.split && strcmp(name, files[1]) == 0) ||
                    strcmp(name, "ggufs") == 0 ||
                    strncmp(name, "kept-", 5) == 0; /* made by faultsys.h */
        const bool journal = strcmp(name, strrchr(journal_path, '/') + 1) == 0;
        if ((journal && world->disk.hits) || (!ours && world->disk.hits && failures("unlink")) ||
            (!ours && failures("rename") && failures("rename") + failures("fstatat") > 1))
            world->out.crashed = true; /* the next mount removes them */
        else if (!ours)
            sched_fail("%s is left beside the model", name);
    }
    if (d)
        (void)closedir(d);
}

/* ---- in place ---- */

/* Edits some small models in place, as auto does with large ones. */
int __wrap_edit_commit(struct edit_file *f, const struct edit_plan *p, const struct edit_options *o,
                       const struct edit_hooks *h, struct edit_result *ret, struct err *e)
{
    struct edit_options now = *o;
    if (o->strategy == EDIT_AUTO && p->inplace && sched_lot(2))
        now.strategy = EDIT_INPLACE;
    return __real_edit_commit(f, p, &now, h, ret, e);
}

/* ---- actors ---- */

static _Noreturn void crash(bool power)
{
    if (power)
        disk_cut(sched_draw(1u << 30));
    else
        disk_leave(world->folder);
    world->out.crashed = true;
    end_now();
}

static void cut_power(void)
{
    crash(true);
}

static void be_killed(void)
{
    crash(false);
}

/* Ends a recovery with a crash. */
static void crash_again(void)
{
    crash(sched_lot(2));
}

/* Writes or replaces the model, as another program might. ggufs must not overwrite it after
 * that. */
static void alter(bool replace)
{
    char path[128], beside[140], journal[128];
    size_t n;
    run_path(world, path);
    run_journal(world, journal);
    (void)snprintf(beside, sizeof(beside), "%s.new", path);
    do /* wait until a change gives the file a new time */
        sched_pass(5);
    while (!disk_is_old(path));
    uint8_t *bytes = disk_read(path, &n);
    struct gguf *g = parsed(bytes, n, NULL);
    if (!g || access(journal, F_OK) == 0) {
        gguf_free(g);
        __real_free(bytes); /* the result of two writers in place is undefined */
        return;
    }
    kernel.rough = world->oracle.off = true;
    bytes[g->tensor[0].off + 4] ^= 1;
    gguf_free(g);
    world->altered = true;
    world->altered_n = n;
    (void)disk_write(replace ? beside : path, bytes, n);
    if (replace)
        (void)rename(beside, path);
    memcpy(world->altered_head, bytes,
           n < sizeof(world->altered_head) ? n : sizeof(world->altered_head));
    __real_free(bytes);
}

/* Checks that the model still holds what another program wrote. */
static void check_altered(void)
{
    char path[128];
    size_t n = 0;
    run_path(world, path);
    uint8_t *bytes = disk_read(path, &n);
    if (!bytes || n != world->altered_n || memcmp(bytes, world->altered_head, n) != 0)
        sched_fail("what another program wrote to the model is overwritten");
    __real_free(bytes);
}

static void befall(struct program *p, const struct step *s)
{
    sched_point("befall", s->word);
    switch (s->word) {
    case W_FAIL:
        disk_fail(calls[s->call], s->n, (int)s->n2, s->n3);
        break;
    case W_ROOM:
        disk_room(s->n);
        break;
    case W_BRIEF:
        disk_brief(true);
        break;
    case W_SLOW:
        disk_slow(s->n);
        break;
    case W_MEND:
        disk_mend();
        (void)alloc_disarm();
        break;
    case W_SIGNAL:
        kernel_signal(&kernel, s->n, s->n2);
        break;
    case W_ALTER:
    case W_REPLACE:
        if (!kernel.rough)
            alter(s->word == W_REPLACE);
        break;
    case W_POWER:
    case W_KILL:
        if (s->n)
            disk_then(s->n, s->word == W_POWER ? cut_power : be_killed);
        else
            crash(s->word == W_POWER);
        break;
    case W_NOMEM:
    case W_SHORT:
        world->disk.hits++;
        world->oracle.off = true; /* any call may fail */
        alloc_arm(s->n, s->word == W_SHORT);
        break;
    case W_TERM:
        kernel.gone = true;
        break;
    default:
        kernel_step(p, s);
    }
}

static void *act(void *arg)
{
    struct program *p = arg;
    for (unsigned i = 0; i < world->story.n && !kernel.gone; i++) {
        const struct step *s = &world->story.step[i];
        if (s->actor != p->number)
            continue;
        if (p->number == DISK)
            befall(p, s);
        else
            kernel_step(p, s);
    }
    if (!kernel.gone)
        kernel_exit(p);
    return NULL;
}

/* ---- the run ---- */

static void log_line(int priority, const char *line)
{
    if (sched_trace)
        sched_note("log %d: %s", priority, line);
}

static struct tree *open_tree(void)
{
    char path[128];
    struct tree *t = NULL;
    struct err e = {0};
    options = (struct tree_options){.commit = (enum live_commit)world->story.commit,
                                    .strategy = (enum edit_strategy)world->story.strategy,
                                    .reserve = needs_reserve() ? 3000 : EDIT_RESERVE_AUTO,
                                    .history = world->story.history ? 5 : 0,
                                    .tensors = world->story.tensors,
                                    .log = {.line = log_line}};
    run_path(world, path);
    int r = tree_open(path, &options, &t, &e);
    if (r < 0 && (world->disk.hits || kernel.rough))
        end_now();
    if (r < 0)
        sched_fail("the model cannot be opened: %s: %s", strerror(-r), e.msg);
    if (!tree_writable(t))
        sched_fail("the model is read-only: %s", tree_why_not(t));
    return t;
}

static void hang(int sig)
{
    static const char text[] = "it hangs outside of the scheduler";
    (void)sig;
    memcpy(world->out.why, text, sizeof(text));
    world->out.failed = true;
    _exit(0);
}

static void begin(struct world *w, uint64_t seed)
{
    world = w;
    sched_failed = failed;
    (void)setenv("XDG_STATE_HOME", w->folder, 1);
    (void)signal(SIGALRM, hang);
    (void)alarm(300);
    sched_begin(seed);
}

static void play(struct tree *t)
{
    struct thread late, client[ACTORS];
    kernel_init(&kernel, world, t);
    (void)thread_start(&late, kernel_late, &kernel);
    for (unsigned i = 0; i < ACTORS; i++)
        (void)thread_start(&client[i], act, &kernel.program[i]);
    for (unsigned i = 0; i < ACTORS; i++)
        thread_join(&client[i]);
    lock_take(&kernel.lock);
    kernel.stop = true;
    cond_broadcast(&kernel.more);
    lock_drop(&kernel.lock);
    thread_join(&late);
}

_Noreturn void run_story(struct world *w)
{
    world = w;
    disk_begin(&w->disk, w->folder, has_step(W_POWER) || has_step(W_KILL), w->story.features);
    begin(w, w->seed);
    make_model();
    int fds = soak_files();
    alloc_count();
    struct tree *t = open_tree();
    play(t);
    uint32_t since = tensors_now(w);
    if (!kernel.gone && !kernel.rough && !w->disk.hits && w->story.commit != LIVE_COMMIT_SYNC &&
        sched_lot(2)) {
        for (int i = 0; i < 100; i++) /* by then all is written that waited for more */
            sched_pass(1000);
        if (!w->disk.hits) { /* else nothing is tried again by time */
            oracle_finished(&w->oracle);
            tensors_synced(w, since, true);
            kernel_look_disk(&kernel, "a minute later");
        }
    }
    if (kernel.gone) {
        tree_stop(t);
        live_abandon(tree_live(t));
        kernel_drop(&kernel);
    }
    since = tensors_now(w);
    int r = tree_finish(t);
    sched_note("finish: %d", r);
    if (r < 0 && !w->disk.hits && !kernel.rough)
        sched_fail("the end of the mount is answered with %s", strerror(-r));
    if (r == 0)
        oracle_finished(&w->oracle);
    if (r == 0 && !w->oracle.off && !w->oracle.astray)
        tensors_synced(w, since, !w->oracle.fails);
    tree_close(t);
    for (int i = 0; i == 0 || (i < 100 && alloc_live() > LEFT_MOST); i++)
        sched_pass(60000); /* long enough for anything slow to end */
    if (alloc_live() > LEFT_MOST)
        sched_fail("%lld bytes of memory are left", alloc_live());
    kernel_look_disk(&kernel, "at the end");
    /* otherwise the model may be overwritten */
    if (world->altered && !(world->story.features & NO_EXCHANGE))
        check_altered();
    check_folder();
    if (w->story.split)
        check_second();
    disk_now();
    /* While a thread is ending, /proc may list one more descriptor. */
    int left = 1;
    for (unsigned i = 0; i < 1000 && left; i++, (void)sched_yield())
        left = soak_files() - fds;
    if (left)
        sched_fail("%d descriptors are left", left);
    end_now();
}

_Noreturn void run_recovered(struct world *w)
{
    disk_begin(&w->disk, w->folder, true, w->story.features);
    w->disk.hits = 0; /* the disk works from now on */
    begin(w, w->seed + ++w->out.crashes);
    w->out.crashed = false;
    if (w->out.crashes < CRASHES && sched_lot(2))
        disk_then(1 + sched_draw(sched_lot(2) ? 20 : 80), crash_again);
    struct tree *t = open_tree();
    kernel_init(&kernel, w, t);
    kernel_look_disk(&kernel, "after recovery");
    (void)tree_finish(t);
    tree_close(t);
    kernel_look_disk(&kernel, "after recovery and a mount");
    check_folder();
    if (w->story.split)
        check_second();
    disk_now();
    end_now();
}
