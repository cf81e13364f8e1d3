/* SPDX-License-Identifier: MIT */
/* ggufs: the command. Exit status: 0 mounted (or help), 1 failed, 2 wrong option. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "derive/digest.h"
#include "derive/picture.h"
#include "command.h"
#include "usage.h"
#include "mount/session.h"

/* Files that need a library do not exist in a build without it. */
static void print_version(void)
{
    const char *sha256 = digest_library(), *pictures = picture_library();
    (void)printf("ggufs %s, libfuse %s\n", GGUFS_VERSION, fuse_pkgversion());
    (void)printf("sha256, hashes: %s\n", sha256 ? sha256 : "not in this build (libcrypto)");
    (void)printf("heatmap.png: %s%s\n", pictures ? "zlib " : "",
                 pictures ? pictures : "not in this build (zlib)");
}

static int run(struct mnt_options *o)
{
    struct err e = {0};
    if (o->help) {
        (void)fputs(help, stdout);
        return 0;
    }
    if (o->version) {
        print_version();
        return 0;
    }
    if (mnt_run(o, &e) == 0)
        return 0;
    (void)fprintf(stderr, "ggufs: %s\n", e.msg);
    return 1;
}

/* Each file of a split model stays open, which may exceed the soft limit of 1024. */
static void allow_open_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return;
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
}

/*
 * If a standard stream is closed, the next file that is opened gets its number: a daemon would lose
 * the model, or its folder, when it redirects its streams to /dev/null. So open something in their
 * place. It fails like a closed stream, because it is open for the other direction only.
 */
static void hold_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/*
 * Buffers of this size and more go back to the system when they are freed. By default glibc raises
 * the bound to 32 MiB, and each thread's heap keeps the largest values that passed through it.
 */
#define LARGE_BUFFER (2 << 20)

static void give_memory_back(void)
{
#ifdef M_MMAP_THRESHOLD
    (void)mallopt(M_MMAP_THRESHOLD, LARGE_BUFFER);
#endif
}

int main(int argc, char **argv)
{
    struct mnt_options o;
    int status = 2;
    hold_standard_streams();
    allow_open_files();
    give_memory_back();
    if (command_run(argc, argv, &status))
        return status;
    if (mnt_options_parse(argc, argv, &o) < 0)
        (void)fprintf(stderr, "ggufs: %s\n", o.err.msg);
    else
        status = run(&o);
    mnt_options_free(&o);
    return status;
}
