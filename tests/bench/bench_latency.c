/* SPDX-License-Identifier: MIT */
/*
 * Reads 4 KiB at random offsets in files and prints how long the reads take.
 *
 *     bench_latency [-i MICROSECONDS] FILE...
 *
 * It reads one block after another, with a pause of MICROSECONDS (default 500) between them, until
 * standard input ends. The files are opened with O_DIRECT, so each read of a mounted file reaches
 * its server, regardless of the page cache. Prints one line: the number of reads, then the median,
 * the 99th and the 99.9th percentile and the longest, in milliseconds.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "stopwatch.h"

enum {
    PIECE = 4096,
    MAX_FILES = 64,
    MAX_READS = 1 << 22, /* half an hour at the default pause */
};

struct file {
    int fd;
    uint64_t pieces;
};

static struct file open_file(const char *path)
{
    struct file f = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT)};
    struct stat st;
    if (f.fd < 0 || fstat(f.fd, &st) != 0)
        die(path);
    f.pieces = (uint64_t)st.st_size / PIECE;
    if (f.pieces == 0) {
        fprintf(stderr, "%s: shorter than %d bytes\n", path, PIECE);
        exit(1);
    }
    return f;
}

/* Wait for the pause. Returns 0 when standard input has ended. */
static int go_on(long pause_us)
{
    struct timespec t = {.tv_sec = pause_us / 1000000, .tv_nsec = pause_us % 1000000 * 1000};
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    int n = ppoll(&input, 1, &t, NULL);
    if (n < 0 && errno != EINTR)
        die("poll");
    return n <= 0;
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void print(float *ms, size_t n)
{
    qsort(ms, n, sizeof *ms, by_size);
    printf("%zu\t%.3f\t%.3f\t%.3f\t%.3f\n", n, (double)ms[n / 2], (double)ms[n / 100 * 99],
           (double)ms[n - 1 - n / 1000], (double)ms[n - 1]);
}

int main(int argc, char **argv)
{
    struct file files[MAX_FILES];
    size_t n_files = 0, n = 0;
    long pause_us = 500;
    int option;
    while ((option = getopt(argc, argv, "i:")) != -1) {
        if (option != 'i')
            return 2;
        pause_us = strtol(optarg, NULL, 10);
    }
    if (optind == argc || argc - optind > MAX_FILES || pause_us < 0) {
        fprintf(stderr, "usage: bench_latency [-i MICROSECONDS] FILE...\n");
        return 2;
    }
    for (int i = optind; i < argc; i++)
        files[n_files++] = open_file(argv[i]);
    float *ms = calloc(MAX_READS, sizeof *ms);
    void *buffer = NULL;
    if (!ms || posix_memalign(&buffer, PIECE, PIECE) != 0)
        die("memory");
    uint64_t random = 88172645463325252u;
    do {
        struct file f = files[next_random(&random) % n_files];
        off_t at = (off_t)(next_random(&random) % f.pieces * PIECE);
        double begin = now();
        if (pread(f.fd, buffer, PIECE, at) != PIECE)
            die("read");
        ms[n++] = (float)((now() - begin) * 1e3);
    } while (n < MAX_READS && go_on(pause_us));
    print(ms, n);
    return 0;
}
