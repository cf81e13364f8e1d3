/* SPDX-License-Identifier: MIT */
/*
 * Reads files in turn and prints how long each turn took: the stopwatch of scripts/bench.
 *
 *     bench_read [-r ROUNDS] [-b BYTES] [-m N] [-c] [-w] [-t N] FILE...
 *
 * A FILE may be several paths joined by commas: they are read at the same time, each by its own
 * process. A round reads each FILE once, in an order that rotates by one from round to round, so
 * that neither a slow moment of the machine nor the position in a round favours one file. Prints a
 * line for each turn: round, number of the FILE (from 0), seconds.
 *
 *   -b   bytes per read(2), always into the same buffer (default 1 MiB)
 *   -m   instead of read(2): map the file, and copy 4 KiB from each of N places, which are random
 *        multiples of 4 KiB
 *   -c   cold: before each turn the kernel drops the file's pages. On a mount this empties the
 *        mount's own cache, but not that of the model file, which is a different file
 *   -w   warm: each file first has an untimed turn, as always without -c
 *   -t   touch: before each turn, touch N times as much memory as the file has bytes, and free it.
 *        In a virtual machine whose host reclaims free memory, the first use of a page costs
 *        several times as much as later ones. With -t, the kernel takes the pages of its cache
 *        from memory that the machine already has
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stopwatch.h"

enum { PAGE = 4096, MAX_PATHS = 64, MAX_FILES = 64 };

struct how {
    unsigned rounds;
    size_t chunk;  /* bytes per read */
    size_t places; /* number of random places; 0: read in order */
    bool cold;     /* drop the file's pages before each turn */
    bool warm;     /* run an untimed turn first */
    size_t touch;  /* multiple of the file's size that is touched in memory before each turn */
};

/* A file that a turn reads. */
struct file {
    int number;
    char *path[MAX_PATHS];
    size_t n;
};

static void drop_pages(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
        die(path);
    (void)close(fd);
}

/* Memory is not touched in huge pages, because the kernel's cache of a mount has none. */
static void touch_memory(const char *path, size_t times)
{
    struct stat st;
    if (stat(path, &st) < 0 || st.st_size < 1)
        die(path);
    size_t n = (size_t)st.st_size * times;
    uint8_t *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        die("memory");
    (void)madvise(p, n, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < n; i += PAGE)
        p[i] = 1;
    (void)munmap(p, n);
}

static uint64_t read_in_order(int fd, const struct how *h, void *buffer)
{
    uint64_t total = 0;
    ssize_t n;
    while ((n = read(fd, buffer, h->chunk)) > 0)
        total += (uint64_t)n;
    return n < 0 ? 0 : total;
}

static uint64_t read_places(int fd, const struct how *h, void *buffer, uint64_t seed)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || st.st_size < PAGE)
        return 0;
    const uint8_t *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED || madvise((void *)(uintptr_t)map, (size_t)st.st_size, MADV_RANDOM) < 0)
        return 0;
    const uint64_t pages = (uint64_t)st.st_size / PAGE;
    for (size_t i = 0; i < h->places; i++)
        memcpy(buffer, map + next_random(&seed) % pages * PAGE, PAGE);
    (void)munmap((void *)(uintptr_t)map, (size_t)st.st_size);
    return (uint64_t)h->places * PAGE;
}

static uint64_t read_file(const char *path, const struct how *h, void *buffer, uint64_t seed)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        die(path);
    uint64_t n = h->places ? read_places(fd, h, buffer, seed) : read_in_order(fd, h, buffer);
    (void)close(fd);
    if (n == 0)
        die(path);
    return n;
}

/* All children start when the other end of the pipe is closed. */
static _Noreturn void child(const char *path, const struct how *h, void *buffer, uint64_t seed,
                            const int gate[2])
{
    char byte;
    (void)close(gate[1]);
    (void)!read(gate[0], &byte, 1);
    (void)read_file(path, h, buffer, seed);
    _exit(0);
}

static double time_many(const struct file *f, const struct how *h, void *buffer, uint64_t seed)
{
    int gate[2], status;
    if (pipe(gate) < 0)
        die("pipe");
    for (size_t i = 0; i < f->n; i++) {
        pid_t pid = fork();
        if (pid < 0)
            die("fork");
        if (pid == 0)
            child(f->path[i], h, buffer, seed + i, gate);
    }
    double start = now();
    (void)close(gate[0]);
    (void)close(gate[1]);
    for (size_t i = 0; i < f->n; i++)
        if (wait(&status) < 0 || status != 0)
            die("a reader failed");
    return now() - start;
}

static double time_one(const struct file *f, const struct how *h, void *buffer, uint64_t seed)
{
    double start = now();
    (void)read_file(f->path[0], h, buffer, seed);
    return now() - start;
}

static void turn(unsigned round, const struct file *f, const struct how *h, void *buffer)
{
    const uint64_t seed = 88172645463325252u + round;
    for (size_t i = 0; h->cold && i < f->n; i++)
        drop_pages(f->path[i]);
    for (size_t i = 0; h->touch && i < f->n; i++)
        touch_memory(f->path[i], h->touch);
    double seconds = f->n > 1 ? time_many(f, h, buffer, seed) : time_one(f, h, buffer, seed);
    (void)printf("%u\t%d\t%.9f\n", round, f->number, seconds);
}

static void split(char *arg, struct file *f)
{
    for (char *path = strtok(arg, ","); path && f->n < MAX_PATHS; path = strtok(NULL, ","))
        f->path[f->n++] = path;
}

static int usage(void)
{
    (void)fprintf(stderr,
                  "usage: bench_read [-r ROUNDS] [-b BYTES] [-m N] [-c] [-w] [-t N] FILE...\n");
    return 2;
}

static unsigned long number_of(const char *text)
{
    return strtoul(text, NULL, 10);
}

static bool parse(int argc, char **argv, struct how *h)
{
    for (int c; (c = getopt(argc, argv, "r:b:m:cwt:")) != -1;) {
        if (c == 'r')
            h->rounds = (unsigned)number_of(optarg);
        else if (c == 'b')
            h->chunk = number_of(optarg);
        else if (c == 'm')
            h->places = number_of(optarg);
        else if (c == 'c')
            h->cold = true;
        else if (c == 't')
            h->touch = number_of(optarg);
        else if (c == 'w')
            h->warm = true;
        else
            return false;
    }
    return optind < argc && argc - optind <= MAX_FILES && h->chunk >= PAGE;
}

static struct file file[MAX_FILES];

int main(int argc, char **argv)
{
    struct how h = {.rounds = 11, .chunk = 1 << 20};
    if (!parse(argc, argv, &h))
        return usage();
    const int files = argc - optind;
    void *buffer = NULL;
    if (posix_memalign(&buffer, PAGE, h.chunk) != 0)
        die("memory");
    memset(buffer, 1, h.chunk);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < files; i++) {
        file[i].number = i;
        split(argv[optind + i], &file[i]);
        for (size_t k = 0; (!h.cold || h.warm) && k < file[i].n; k++)
            (void)read_file(file[i].path[k], &h, buffer, 1);
    }
    for (unsigned round = 0; round < h.rounds; round++)
        for (int i = 0; i < files; i++)
            turn(round, &file[(i + (int)round) % files], &h, buffer);
    free(buffer);
    return 0;
}
