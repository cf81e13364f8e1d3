/* SPDX-License-Identifier: MIT */
/*
 * Runs a harness over files: each argument is a file or a directory of files. Exits with 1 if there
 * are no files, so that a lost corpus is noticed.
 */
#include "fuzz.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

/* The file's bytes are in an allocation of exactly their size, so that a sanitizer detects reads
 * beyond them. */
static int run_file(const char *path, size_t size)
{
    FILE *f = fopen(path, "rb");
    uint8_t *bytes = malloc(size ? size : 1);
    int ran = 0;
    if (f && bytes && fread(bytes, 1, size, f) == size) {
        (void)LLVMFuzzerTestOneInput(bytes, size);
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
static int run_path(const char *path);

static int run_folder(const char *path)
{
    int ran = 0;
    DIR *d = opendir(path);
    for (const struct dirent *e; d && (e = readdir(d));) {
        char file[4096];
        if (e->d_name[0] == '.')
            continue;
        int n = snprintf(file, sizeof(file), "%s/%s", path, e->d_name);
        ran += n > 0 && (size_t)n < sizeof(file) ? run_path(file) : 0;
    }
    if (d)
        (void)closedir(d);
    return ran;
}

static int run_path(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        perror(path);
        return 0;
    }
    return S_ISDIR(st.st_mode) ? run_folder(path) : run_file(path, (size_t)st.st_size);
}

int main(int argc, char **argv)
{
    int ran = 0;
    for (int i = 1; i < argc; i++)
        ran += run_path(argv[i]);
    (void)printf("%d inputs\n", ran);
    return ran ? 0 : 1;
}
