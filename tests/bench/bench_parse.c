/* SPDX-License-Identifier: MIT */
/*
 * Measures how long gguf_parse() takes for a model file in the page cache.
 *
 *     bench_parse ROUNDS MODEL
 *
 * Prints a line for each round: seconds from open(2) to the parsed model, and the size of its
 * header in bytes.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "gguf/gguf.h"
#include "stopwatch.h"

static int once(const char *path)
{
    struct err e = {0};
    struct source src;
    struct gguf *g = NULL;
    double start = now();
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int r = source_fd(fd, &src, &e);
    if (r == 0)
        r = gguf_parse(&src, 0, &g, &e);
    double seconds = now() - start;
    if (r == 0)
        (void)printf("%.9f\t%llu\n", seconds, (unsigned long long)g->head_len);
    else
        (void)fprintf(stderr, "bench_parse: %s: %s\n", path, e.msg);
    gguf_free(g);
    (void)close(fd);
    return r;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        (void)fprintf(stderr, "usage: bench_parse ROUNDS MODEL\n");
        return 2;
    }
    for (int i = atoi(argv[1]); i > 0; i--)
        if (once(argv[2]) < 0)
            return 1;
    return 0;
}
