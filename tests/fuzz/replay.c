/* SPDX-License-Identifier: MIT */
/*
 * Runs a harness over files: each argument is a file, or a directory of files that are also run with
 * random changes. Exits with 1 if there are no files, so that a lost corpus is noticed.
 */
#include "fuzz.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

enum { CHANGED = 1000 };

static uint64_t state; /* begins anew for each file */

static size_t draw(size_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(state >> 33) % n;
}

/* Run the first bytes, in an allocation of exactly their size, so that a sanitizer detects reads
 * beyond them. */
static void run_bytes(const uint8_t *bytes, size_t size)
{
    uint8_t *own = malloc(size ? size : 1);
    FUZZ_CHECK(own);
    if (size)
        memcpy(own, bytes, size);
    (void)LLVMFuzzerTestOneInput(own, size);
    free(own);
}

/* Run the bytes with another end (in which the harness for edits finds them), with a few other
 * bytes, or cut short. */
static void run_changed(const uint8_t *bytes, size_t size)
{
    enum { END = 64 };
    uint8_t *own = malloc(size);
    FUZZ_CHECK(own);
    memcpy(own, bytes, size);
    const size_t how = draw(4);
    for (size_t i = size > END ? size - END : 0; i < size && how < 2; i++)
        own[i] = (uint8_t)draw(256);
    for (size_t k = draw(4); k < 4 && how; k++)
        own[draw(size)] = (uint8_t)draw(256);
    run_bytes(own, how == 3 ? draw(size) : size);
    free(own);
}

static int run_file(const char *path, size_t size, unsigned changed)
{
    FILE *f = fopen(path, "rb");
    uint8_t *bytes = malloc(size ? size : 1);
    int ran = 0;
    if (f && bytes && fread(bytes, 1, size, f) == size) {
        run_bytes(bytes, size);
        state = size;
        for (unsigned i = 0; i < changed && size; i++)
            run_changed(bytes, size);
        ran = 1;
    }
    free(bytes);
    if (f)
        (void)fclose(f);
    if (!ran)
        (void)fprintf(stderr, "cannot read %s\n", path);
    return ran;
}

/* Return the number of files that were run. */
static int run_path(const char *path, unsigned changed);

static int run_folder(const char *path)
{
    int ran = 0;
    DIR *d = opendir(path);
    for (const struct dirent *e; d && (e = readdir(d));) {
        char file[4096];
        if (e->d_name[0] == '.')
            continue;
        int n = snprintf(file, sizeof(file), "%s/%s", path, e->d_name);
        ran += n > 0 && (size_t)n < sizeof(file) ? run_path(file, CHANGED) : 0;
    }
    if (d)
        (void)closedir(d);
    return ran;
}

static int run_path(const char *path, unsigned changed)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        perror(path);
        return 0;
    }
    return S_ISDIR(st.st_mode) ? run_folder(path) : run_file(path, (size_t)st.st_size, changed);
}

int main(int argc, char **argv)
{
    int ran = 0;
    for (int i = 1; i < argc; i++)
        ran += run_path(argv[i], 0);
    (void)printf("%d inputs\n", ran);
    return ran ? 0 : 1;
}
