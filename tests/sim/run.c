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
#include "base/lock.h"
#include "build_gguf.h"
#include "hooks.h"
#include "kernel.h"
#include "reader.h"
#include "tensors.h"

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
    build_num(b, "split.tensors.count", GGUF_I32, TENSORS_THERE + 2);
}

/* Writes the second file of a split model, which no edit changes. */
static void make_second(void)
{
    struct build b;
    uint8_t values[FLOATS * 4];
    char path[128];
    build_init(&b, 3, false);
    add_split(&b, 1);
    (void)tensors_bytes(0, REST, values);
    build_tensor(&b, "rest", 0, (uint64_t[]){REST}, 1, values, 4 * REST);
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

static void make_model(void)
{
    struct build b;
    uint8_t values[FLOATS * 4];
    char path[128], text[16];
    size_t n;
    build_init(&b, 3, false);
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
    (void)tensors_bytes(0, KEPT, values);
    build_tensor(&b, "keep", 0, (uint64_t[]){KEPT}, 1, values, 4 * KEPT);
    for (unsigned t = 0; t < TENSORS_THERE; t++) {
        (void)tensors_bytes(0, TOKEN_FIRST + KEYS_THERE + t, values);
        build_tensor(&b, names[KEYS + t], 0, (uint64_t[]){FLOATS}, 1, values, sizeof(values));
    }
    for (unsigned i = 0; i < REGS; i++) {
        unsigned first = i < KEYS_THERE ? TOKEN_FIRST + i
                         : i >= KEYS && i < KEYS + TENSORS_THERE
                             ? TOKEN_FIRST + KEYS_THERE + i - KEYS
                             : TOKEN_ABSENT;
        oracle_end(&world->oracle, oracle_begin(&world->oracle, i, BIT(first)), DURABLE);
    }
    for (unsigned t = 0; t < TENSORS_THERE; t++) {
        oracle_end(&world->oracle, oracle_begin(&world->oracle, TYPES + t, BIT(TOKEN_FIRST)),
                   DURABLE);
        oracle_end(&world->oracle, oracle_begin(&world->oracle, SHAPES + t, BIT(TOKEN_FIRST)),
                   DURABLE);
    }
    uint8_t *image = build_finish(&b, &n);
    run_path(world, path);
    if (!disk_write(path, image, n))
        sched_fail("the model cannot be written");
    free(image);
}

static unsigned token_of_number(unsigned v)
{
    return v >= 1000 + TOKEN_FIRST && v < 1000 + TOKENS ? v - 1000 : TOKEN_OTHER;
}

static unsigned token_of(const struct read_key *k)
{
    char text[16] = "";
    uint32_t v = 0;
    if (k->type == GGUF_STRING && k->n < sizeof(text)) {
        memcpy(text, k->value, k->n);
        v = (uint32_t)strtoul(text, NULL, 10);
    } else if (k->n == 4 || k->n == 8) {
        for (unsigned i = 0; i < 4; i++)
            v |= (uint32_t)k->value[i] << 8 * i; /* the upper four of eight bytes are 0 */
    }
    return k->type == GGUF_STRING && k->n == 0 ? TOKEN_EMPTY : token_of_number(v);
}

/* Returns whether everything about the tensor that no program edits is unchanged. */
static bool has_values(const struct read_tensor *t, const char *name, unsigned token,
                       const uint8_t *bytes, size_t n)
{
    uint8_t want[FLOATS * 4];
    (void)tensors_bytes(0, token, want);
    return strcmp(t->name, name) == 0 && t->off + 4 * token <= n &&
           memcmp(bytes + t->off, want, 4 * token) == 0;
}

static bool rest_is_whole(const struct read_model *m, const uint8_t *bytes, size_t n, bool merged)
{
    bool list = false;
    for (unsigned i = 0; i < m->keys; i++)
        list |= strcmp(m->key[i].name, "z.list") == 0 && m->key[i].n == 8 &&
                memcmp(m->key[i].value, "\7\0\0\0\10\0\0\0", 8) == 0;
    return list && m->tensors > 0 && strcmp(m->key[0].name, "general.architecture") == 0 &&
           has_values(&m->tensor[0], "keep", KEPT, bytes, n) &&
           (!merged || has_values(&m->tensor[m->tensors - 1], "rest", REST, bytes, n));
}

static unsigned token_in(const struct read_model *m, unsigned reg, const uint8_t *bytes, size_t n)
{
    for (unsigned i = 0; i < m->keys && reg < KEYS; i++)
        if (strcmp(m->key[i].name, names[reg]) == 0)
            return token_of(&m->key[i]);
    for (unsigned i = 0; i < m->tensors && reg >= KEYS; i++) {
        const struct read_tensor *t = &m->tensor[i];
        if (strcmp(t->name, names[reg]) != 0)
            continue;
        return tensors_token(t->type, bytes + t->off, n - t->off);
    }
    return TOKEN_ABSENT;
}

void model_keys(const uint8_t *bytes, size_t n, unsigned token[KEYS])
{
    struct read_model m;
    const char *bad = bytes ? read_model(bytes, n, &m) : "there is no model";
    if (bad)
        sched_fail("%s", bad);
    for (unsigned i = 0; i < KEYS; i++)
        token[i] = token_in(&m, i, bytes, n);
}

/* Checks the type and the shape of a tensor in the model. */
static void check_form(const struct world *w, const struct read_model *m, unsigned reg,
                       uint64_t from, bool disk, const char *when)
{
    char told[900];
    for (unsigned i = 0; i < m->tensors; i++) {
        const struct read_tensor *t = &m->tensor[i];
        const unsigned token[] = {token_of_type(t->type), token_of_shape(t->n_dims, t->dim)};
        for (unsigned f = 0; f < 2 && strcmp(t->name, names[reg]) == 0; f++) {
            unsigned r = (f ? SHAPES : TYPES) + reg - KEYS;
            uint64_t may = oracle_may(&w->oracle, r, from, UINT64_MAX, disk);
            if (may & BIT(token[f]))
                continue;
            oracle_tell(&w->oracle, r, told, sizeof(told));
            sched_fail("%s%s: %s of %s is token %u, may be %llx:%s", when,
                       disk ? ", on the disk" : "", f ? "shape" : "type", names[reg], token[f],
                       (unsigned long long)may, told);
        }
    }
}

/* Returns whether bytes of tensors were written in place since `from`. If so, a reader of the whole
 * model sees a mix of old and new bytes, even of a renamed tensor. */
static bool is_overwritten(const struct world *w, uint64_t from)
{
    bool is = false;
    for (unsigned i = KEYS; i < REGS; i++)
        is |= oracle_changed(&w->oracle, i, from);
    return is && w->story.strategy == EDIT_INPLACE;
}

static void check_token(struct world *w, unsigned reg, unsigned token, uint64_t from, bool disk,
                        const char *when)
{
    char told[900];
    const uint64_t may = oracle_may(&w->oracle, reg, from, UINT64_MAX, disk);
    if (may & BIT(token))
        return;
    if (!disk && reg >= KEYS && token != TOKEN_ABSENT && is_overwritten(w, from))
        return;
    if (!disk && reg < KEYS && kernel.before[reg] & BIT(token) &&
        (!kernel.removed[reg] || oracle_changed(&w->oracle, reg, from)))
        return; /* a removed key stays in the model until its next value is accepted */
    oracle_tell(&w->oracle, reg, told, sizeof(told));
    sched_fail("%s%s: %s is token %u, may be %llx:%s", when, disk ? ", on the disk" : "",
               names[reg], token, (unsigned long long)may, told);
}

void check_model(struct world *w, const uint8_t *bytes, size_t n, uint64_t from, bool disk,
                 const char *when)
{
    struct read_model m;
    const char *bad = read_model(bytes, n, &m);
    if (bad)
        sched_fail("%s: %s", when, bad);
    if (!rest_is_whole(&m, bytes, n, w->story.split && !disk))
        sched_fail("%s: what nobody edits has changed", when);
    for (unsigned i = 0; i < REGS; i++) {
        if (i >= KEYS)
            check_form(w, &m, i, from, disk, when);
        check_token(w, i, token_in(&m, i, bytes, n), from, disk, when);
    }
}

void check_json(struct world *w, const char *text, uint64_t from)
{
    for (unsigned i = 0; i < KEYS; i++) {
        char head[32];
        unsigned v = 0, token = TOKEN_ABSENT;
        (void)snprintf(head, sizeof(head), "\"%s\": {", names[i]);
        const char *at = strstr(text, head);
        at = at ? strstr(at, "\"value\": ") : NULL;
        if (at)
            token = strncmp(at + 9, "\"\"", 2) == 0                  ? TOKEN_EMPTY
                    : sscanf(at + 9 + (at[9] == '"'), "%u", &v) == 1 ? token_of_number(v)
                                                                     : TOKEN_OTHER;
        check_token(w, i, token, from, false, "metadata.json");
    }
}

/* ---- beside the model ---- */

/* Returns how often the story makes this call fail. */
static unsigned failures(const char *call)
{
    unsigned times = 0;
    for (unsigned i = 0; i < world->story.n; i++)
        if (world->story.step[i].word == W_FAIL &&
            strcmp(calls[world->story.step[i].call], call) == 0)
            times += world->story.step[i].n3;
    return times;
}

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
            (!ours && world->disk.hits > 2 && failures("rename") > 1))
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
    if (o->strategy == EDIT_AUTO && !world->story.tensors && p->inplace && sched_lot(2))
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
    struct read_model m;
    if (!bytes || read_model(bytes, n, &m) || access(journal, F_OK) == 0) {
        __real_free(bytes); /* the result of two writers in place is undefined */
        return;
    }
    kernel.rough = true;
    bytes[m.tensor[0].off + 4] ^= 1;
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
    switch ((enum word)s->word) {
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
        world->disk.hits++; /* edits may be lost, as after any other fault */
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
                                    .tensors = world->story.tensors,
                                    .history = world->story.history ? 5 : 0,
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

static int count_fds(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    if (d)
        (void)closedir(d);
    return n;
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
    bool cuts = false;
    for (unsigned i = 0; i < w->story.n; i++)
        cuts |= w->story.step[i].word == W_POWER || w->story.step[i].word == W_KILL;
    disk_begin(&w->disk, w->folder, cuts, w->story.features);
    begin(w, w->seed);
    make_model();
    int fds = count_fds();
    alloc_count();
    struct tree *t = open_tree();
    play(t);
    if (kernel.gone) {
        tree_stop(t);
        tree_abandon(t);
        kernel_drop(&kernel);
    }
    uint64_t since = oracle_time(&w->oracle);
    int r = tree_finish(t);
    sched_note("finish: %d", r);
    if (r == 0 && !w->disk.hits && !kernel.rough && !kernel.gone)
        tensors_added(&kernel, tensors_whole(&kernel));
    if (r < 0 && !w->disk.hits && !kernel.rough && !tensors_unsettled(&kernel))
        sched_fail("the end of the mount is answered with %s", strerror(-r));
    if (r == 0 && !w->disk.hits && !kernel.rough)
        oracle_all_durable(&w->oracle, since);
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
        left = count_fds() - fds;
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
