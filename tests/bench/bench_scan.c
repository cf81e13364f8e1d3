/* SPDX-License-Identifier: MIT */
/*
 * Compares the speed of the search for NaN and Inf with that of decoding alone.
 *
 *     bench_scan [GGUF]      by default a model of 64 MiB of Q4_K made in memory
 *
 * Measures the processor time of all threads. Decoding alone writes chunks of the same size into
 * one buffer in the cache. Rounds of the two alternate. Prints the median of each, in GB/s (10^9
 * bytes) of float32, and their ratio.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "build_gguf.h"
#include "check/check.h"
#include "timing.h"

enum { ROUNDS = 9, CHUNK = 6144, Q4_K = 12, Q4_K_BYTES = 144, BLOCKS = 466033 };

/* Make a model in memory whose blocks have small scales. */
static int made(void)
{
    struct build b;
    size_t size, bytes = (size_t)BLOCKS * Q4_K_BYTES;
    uint8_t *data = calloc(1, bytes);
    for (size_t i = 0; data && i < bytes; i++)
        data[i] = (uint8_t)(i % Q4_K_BYTES < 4 ? 0x21 : i * 37);
    build_init(&b, 3, false);
    build_tensor(&b, "w", Q4_K, (uint64_t[]){256, BLOCKS}, 2, data, bytes);
    uint8_t *image = build_finish(&b, &size);
    int fd = memfd_create("bench", MFD_CLOEXEC);
    bool ok = fd >= 0 && write(fd, image, size) == (ssize_t)size;
    free(image);
    free(data);
    return ok ? fd : -1;
}

static double decode(const struct gguf *g, const struct map *m, float *room)
{
    double start = now();
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensor[i];
        for (uint64_t at = 0; at < t->n_elem; at += CHUNK) {
            uint64_t n = t->n_elem - at < CHUNK ? t->n_elem - at : CHUNK;
            quant_read_f32(gguf_type(t), g->fmt.big, m->data + t->off, 4 * at, 4 * (size_t)n, room);
            __asm__ volatile("" : : "r"(room) : "memory");
        }
    }
    return now() - start;
}

static double scan(const struct gguf *g, const struct map *m, struct scan_result *found)
{
    double start = now();
    return scan_run(g, m, NULL, found) == 0 ? now() - start : -1;
}

static int run(const struct gguf *g, const struct map *m)
{
    double alone[ROUNDS], all[ROUNDS], bytes = 0;
    float *room = aligned_alloc(64, CHUNK * sizeof(float));
    struct scan_result *found = calloc((size_t)g->n_tensors + 1, sizeof(*found));
    if (!room || !found)
        return 1;
    for (uint32_t i = 0; i < g->n_tensors; i++)
        bytes += 4 * (double)g->tensor[i].n_elem;
    (void)decode(g, m, room);
    for (int r = 0; r < ROUNDS; r++) {
        alone[r] = decode(g, m, room);
        all[r] = scan(g, m, found);
    }
    double d = median(alone, ROUNDS), s = median(all, ROUNDS);
    (void)printf("decode %.2f GB/s, scan %.2f GB/s, ratio %.2f (best %.2f)\n", bytes / d / 1e9,
                 bytes / s / 1e9, d / s, alone[0] / all[0]);
    free(room);
    free(found);
    return 0;
}

int main(int argc, char **argv)
{
    struct source src;
    struct gguf *g;
    struct map m;
    struct err e = {0};
    int fd = argc > 1 ? open(argv[1], O_RDONLY | O_CLOEXEC) : made();
    if (fd < 0 || source_fd(fd, &src, &e) < 0 || gguf_parse(&src, 0, &g, &e) < 0 ||
        map_guard_init() < 0 || map_open(&m, fd, src.size) < 0) {
        (void)fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    quant_init();
    int status = run(g, &m);
    map_close(&m);
    gguf_free(g);
    (void)close(fd);
    return status;
}
