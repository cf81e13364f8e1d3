/* SPDX-License-Identifier: MIT */
/*
 * Runs stories, in an order of events determined by a seed: see scheduler.h, disk.h, kernel.h,
 * oracle.h.
 *
 *     sim --seconds S [--from N]   stories from fresh seeds, or from seeds N and up, for S seconds
 *                                  (times GGUFS_SOAK)
 *     sim --seed N [--runs M]      the story of seed N, and of the following seeds
 *     sim --story FILE [--seed N] [--runs M]   a story, with different orders of events
 *     sim --found DIR [--seconds S]            all stories in a directory first
 *
 *     --trace    print each point
 *     --shrink   when a run fails, reduce its story to the relevant steps
 *
 * In gdb: set follow-fork-mode child, break sched_fail.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "alloc.h"
#include "run.h"
#include "soak.h"

static struct world *world;
static int noise = -1; /* the file that a run prints to; -1: standard error */
static unsigned long long runs, steps, calls_made, lost; /* lost: stories that the oracle lost */

/* ---- one run ---- */

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *at)
{
    (void)st;
    (void)flag;
    return at->level > 0 ? remove(path) : 0;
}

static void empty_folder(void)
{
    (void)nftw(world->folder, remove_one, 10, FTW_DEPTH | FTW_PHYS);
}

static void in_child(void (*run)(struct world *w))
{
    int status = 0;
    world->out.ended = false;
    pid_t pid = fork();
    if (pid == 0) {
        if (noise >= 0)
            (void)dup2(noise, 2);
        run(world);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (world->out.failed || (world->out.ended && WIFEXITED(status)))
        return;
    world->out.failed = true;
    if (WIFSIGNALED(status))
        (void)snprintf(world->out.why, sizeof(world->out.why), "it ends by signal %d",
                       WTERMSIG(status));
    else
        (void)snprintf(world->out.why, sizeof(world->out.why), "it ends with status %d",
                       WEXITSTATUS(status));
}

/* Returns whether the story failed. */
static bool run(const struct story *s, uint64_t seed)
{
    char folder[64];
    memcpy(folder, world->folder, sizeof(folder));
    memset(&world->disk, 0, sizeof(world->disk));
    memset(&world->out, 0, sizeof(world->out));
    world->altered = false;
    oracle_reset(&world->oracle, &world->disk.hits);
    world->story = *s;
    world->seed = seed;
    if (noise >= 0) {
        (void)ftruncate(noise, 0);
        (void)lseek(noise, 0, SEEK_SET);
    }
    in_child(run_story);
    while (!world->out.failed && world->out.crashed)
        in_child(run_recovered);
    empty_folder();
    runs++;
    steps += world->out.steps;
    calls_made += world->out.calls;
    lost += world->oracle.lost;
    return world->out.failed;
}

/* ---- shrinking ---- */

static struct story without(const struct story *s, unsigned from, unsigned n)
{
    struct story less = *s;
    memmove(&less.step[from], &less.step[from + n], (s->n - from - n) * sizeof(struct step));
    less.n -= n;
    return less;
}

/* Returns whether the story still fails for the same reason, with some seed. */
static bool still(const struct story *s, uint64_t *seed, unsigned tries, const char *why)
{
    for (unsigned i = 0; i < tries; i++) {
        uint64_t with = i ? *seed * 1000003 + i : *seed;
        if (run(s, with) && strncmp(world->out.why, why, strcspn(why, ":")) == 0) {
            *seed = with;
            return true;
        }
    }
    return false;
}

static void shrink(struct story *s, uint64_t *seed, unsigned tries)
{
    char why[sizeof(world->out.why)];
    memcpy(why, world->out.why, sizeof(why));
    for (unsigned n = s->n / 2 ? s->n / 2 : 1;; n = n > 1 ? n / 2 : 1) {
        bool any = false;
        for (unsigned at = 0; at < s->n;) {
            struct story less = without(s, at, at + n > s->n ? s->n - at : n);
            if (still(&less, seed, tries, why)) {
                *s = less;
                any = true;
            } else {
                at += n;
            }
        }
        if (n == 1 && !any)
            break;
    }
}

/* ---- output ---- */

static void print_noise(void)
{
    char bytes[4096];
    ssize_t n;
    if (noise < 0)
        return;
    (void)lseek(noise, 0, SEEK_SET);
    while ((n = read(noise, bytes, sizeof(bytes))) > 0)
        (void)fwrite(bytes, 1, (size_t)n, stdout);
}

static void tell(const struct story *s, uint64_t seed, bool make_small)
{
    struct story small = *s;
    (void)printf("FAILED with --seed %llu: %s\n", (unsigned long long)seed, world->out.why);
    print_noise();
    (void)fflush(stdout);
    if (make_small) {
        shrink(&small, &seed, 60);
        (void)run(&small, seed);
        (void)printf("the same with seed %llu: %s\n", (unsigned long long)seed, world->out.why);
        print_noise();
    }
    story_print(&small, stdout);
    (void)fflush(stdout);
}

/* ---- modes ---- */

static int story_of(const char *file, struct story *ret)
{
    char text[20000] = "";
    unsigned line = 0;
    FILE *f = fopen(file, "r");
    if (f) {
        text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
        (void)fclose(f);
    }
    if (f && story_read(text, ret, &line))
        return 0;
    (void)fprintf(stderr, "%s:%u: not a story\n", file, line);
    return -1;
}

/* Returns whether two runs with one seed have the same trace. */
static bool repeats(const struct story *s, uint64_t seed)
{
    (void)run(s, seed);
    uint64_t hash = world->out.hash;
    (void)run(s, seed);
    if (hash == world->out.hash)
        return true;
    (void)printf("seed %llu: two runs differ\n", (unsigned long long)seed);
    return false;
}

/* Runs stories, or the given one, with n seeds, or for `limit` seconds. Returns whether one failed. */
static bool many(const struct story *given, uint64_t from, uint64_t n, time_t limit,
                 bool make_small)
{
    const time_t end = time(NULL) + limit;
    for (uint64_t seed = from; limit ? time(NULL) < end : seed - from < n; seed++) {
        struct story s = given ? *given : story_draw(seed);
        if (run(&s, seed)) {
            tell(&s, seed, make_small);
            return true;
        }
        if (seed % 64 == 0 && !repeats(&s, seed))
            return true;
    }
    return false;
}

static int all_found(const char *folder)
{
    int bad = 0;
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d));) {
        char path[512];
        struct story s;
        if (e->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        if (story_of(path, &s) < 0) {
            bad++;
            continue;
        }
        if (many(&s, s.seed ? s.seed : 1, soak_size(100), 0, false)) {
            (void)printf("... with the story %s\n", e->d_name);
            bad++;
        }
    }
    if (d)
        (void)closedir(d);
    return bad;
}

static void prepare(void)
{
    cpu_set_t cpus, first;
    alloc_spoil();
    disk_prepare();
    world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    oracle_prepare(&world->oracle);
    (void)snprintf(world->folder, sizeof(world->folder), "%s/ggufs-sim-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(world->folder)) {
        perror(world->folder);
        exit(2);
    }
    /* On one processor, the thread that passes the token wakes the next one fastest. */
    CPU_ZERO(&first);
    if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0)
        for (size_t i = 0, skip = (size_t)getpid() % (size_t)CPU_COUNT(&cpus); i < CPU_SETSIZE; i++)
            if (CPU_ISSET(i, &cpus) && skip-- == 0)
                CPU_SET(i, &first);
    (void)sched_setaffinity(0, sizeof(first), &first);
}

/* ---- the command line ---- */

static struct {
    uint64_t seed; /* 0: not given */
    unsigned runs;
    time_t limit; /* seconds of fresh stories; 0: none are run */
    const char *file, *found;
    bool shrink;
} o = {.runs = 1};

static bool options(int argc, char **argv)
{
    static const struct option known[] = {{"seed", required_argument, NULL, 's'},
                                          {"from", required_argument, NULL, 's'},
                                          {"runs", required_argument, NULL, 'r'},
                                          {"seconds", required_argument, NULL, 'l'},
                                          {"story", required_argument, NULL, 'f'},
                                          {"found", required_argument, NULL, 'd'},
                                          {"shrink", no_argument, NULL, 'm'},
                                          {"trace", no_argument, NULL, 't'},
                                          {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        if (c == 's')
            o.seed = strtoull(optarg, NULL, 10);
        else if (c == 'r')
            o.runs = (unsigned)strtoul(optarg, NULL, 10);
        else if (c == 'l')
            o.limit = atol(optarg) * (time_t)soak_size(1);
        else if (c == 'f')
            o.file = optarg;
        else if (c == 'd')
            o.found = optarg;
        o.shrink |= c == 'm';
        sched_trace |= c == 't';
        if (c == '?')
            return false;
    }
    return optind == argc;
}

int main(int argc, char **argv)
{
    int bad = 0;
    struct story s;
    if (!options(argc, argv) || (o.file && story_of(o.file, &s) < 0))
        return 2;
    prepare();
    if (!sched_trace)
        noise = memfd_create("noise", MFD_CLOEXEC);
    if (o.found)
        bad = all_found(o.found);
    if (!bad && (o.limit || !o.found || o.runs > 1)) {
        if (!o.seed)
            o.seed = o.limit ? (uint64_t)time(NULL) * 1000 + (uint64_t)getpid() % 1000 : 1;
        (void)printf("stories from --seed %llu\n", (unsigned long long)o.seed);
        (void)fflush(stdout);
        bad = many(o.file ? &s : NULL, o.seed, o.runs, o.limit, o.shrink);
    }
    (void)printf("%llu runs (%llu lost), %llu calls, %llu points\n", runs, lost, calls_made, steps);
    soak_count("stories of programs", runs);
    soak_count("calls of programs in stories", calls_made);
    soak_print();
    (void)rmdir(world->folder);
    return bad ? 1 : 0;
}
