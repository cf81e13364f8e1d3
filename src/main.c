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
#include "mount/passing.h"
#include "mount/session.h"

static const char help[] =
    "usage: ggufs [options] MODEL MOUNTPOINT   mount the GGUF file MODEL on a folder\n"
    "       ggufs [options] FOLDER MOUNTPOINT   mount all models of a folder, or of a store\n"
    "       ggufs --unmount MOUNTPOINT...       write what is pending, unmount, wait for the end\n"
    "       ggufs --list [--json]               the mounts of ggufs on this machine\n"
    "       ggufs --recover MODEL...            finish or undo an edit that a crash interrupted\n"
    "       ggufs --info [--json] MODEL|FOLDER...\n"
    "                                           show what a model is, or a table of a folder's\n"
    "       ggufs --check[=full] [--strict] [--ignore=RULE[,RULE]] [--json] MODEL|FOLDER...\n"
    "                                           report what is wrong; full: NaN and Inf too\n"
    "       ggufs --diff [--quick] [--only=keys|tensors] [--ignore=PATTERN]... [--tolerance=X]\n"
    "                    [--json[=all]] A B     what differs between two models, or two folders\n"
    "       ggufs --history[=clear] MODEL        the states that can be restored, or forget them\n"
    "       ggufs --undo[=N] MODEL              restore all keys: before the last edits, or state "
    "N\n"
    "       ggufs --help | --version\n"
    "\n"
    "  -f                    stay in the foreground, log to standard error\n"
    "  -d                    the same, and show each request\n"
    "  -s                    one thread\n"
    "  -o ro                 do not edit\n"
    "  -o commit=WHEN        when an edit is written: auto (default), close, sync\n"
    "  -o relayout=HOW       how: auto (default), reflink, inplace, copy\n"
    "  -o reserve=SIZE       room for the header to grow: auto (default), 0, or bytes (K, M, G)\n"
    "  -o hardlinks=break    edit a model that has other hard links (default: refuse)\n"
    "  -o backup[=SUFFIX]    keep the model as it was before the first edit as MODEL~\n"
    "  -o hashnames=edit     edit a model whose file name is a hash of it (default: refuse)\n"
    "  -o tensors=edit       edit tensors too (default: read)\n"
    "  -o history=N          states of the keys that are kept for --undo (default 20; 0: none)\n"
    "  -o partial            mount an incomplete download; reads of what is missing give EIO\n"
    "  -o views=WHICH        what folders list: std (default); raw: each byte once;\n"
    "                        all: also the files that otherwise only open by name\n"
    "  -o uid=N,gid=N        owner of all files (default: the model file's)\n"
    "  -o umask=N            permissions of all files, octal (default: the model file's)\n"
    "  -o allow_other        let other users in;  allow_root: let root in\n"
    "  -o auto_unmount       unmount when the process ends in any way\n"
    "  -o fsname=NAME        the source that mount(8) shows (default: the model's path)\n"
    "  -o readahead=KIB      how much the kernel reads ahead (root only; default 1024)\n"
    "  -o idle=SECONDS       unmount when nothing was open for so long (default: never)\n"
    "  -o max_threads=N      threads that serve requests;  clone_fd: a queue for each\n"
    "  -h, --help            this text\n"
    "  -V, --version         the versions of ggufs and libfuse\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 wrong option.\n"
    "--check: 0 no errors, 1 errors (with --strict also warnings), 2 unusable.\n"
    "--diff: 0 the same, 1 different, 2 trouble.\n";

/* Files that need a library do not exist in a build without it. */
static void print_version(void)
{
    const char *sha256 = digest_library(), *pictures = picture_library();
    (void)printf("ggufs %s, libfuse %s\n", GGUFS_VERSION, fuse_pkgversion());
    (void)printf("sha256, hashes: %s\n", sha256 ? sha256 : "not in this build (libcrypto)");
    (void)printf("heatmap.png: %s%s\n", pictures ? "zlib " : "",
                 pictures ? pictures : "not in this build (zlib)");
    (void)printf("passthrough: %s\n", passing_built() ? "for root, from Linux 6.9 on"
                                                      : "not in this build (libfuse 3.17)");
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
