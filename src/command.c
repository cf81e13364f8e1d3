/* SPDX-License-Identifier: MIT */
/* The commands besides mounting: see command.h. */
#include "command.h"

#include <stdio.h>
#include <string.h>

#include "command_check.h"
#include "mount/unmount.h"
#include "tree/tree.h"

/* To standard error, each behind the program's name. */
static void print_lines(const struct buf *lines)
{
    const char *p = (const char *)lines->data, *end = p + lines->len;
    while (p < end) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        int n = (int)((stop ? stop : end) - p);
        (void)fprintf(stderr, "ggufs: %.*s\n", n, p);
        p += n + 1;
    }
}

static int unmount(int argc, char **argv)
{
    int status = 0;
    for (int i = 0; i < argc; i++) {
        CLEANUP(buf_free) struct buf lost = BUF_INIT;
        struct err e = {0};
        bool failed = mnt_unmount(argv[i], &lost, &e) < 0;
        print_lines(&lost);
        if (failed)
            (void)fprintf(stderr, "ggufs: %s\n", e.msg);
        status |= failed || lost.len > 0;
    }
    return status;
}

static int recover(int argc, char **argv)
{
    int status = 0;
    for (int i = 0; i < argc; i++) {
        struct err e = {0};
        struct edit_recovered found = {0};
        char shown[SHOW_MAX];
        (void)show(shown, argv[i], strlen(argv[i]));
        if (tree_recover(argv[i], &found, &e) < 0) {
            (void)fprintf(stderr, "ggufs: %s: %s\n", shown, e.msg);
            status = 1;
        } else if (found.finished) {
            (void)printf("%s: an interrupted edit was finished\n", shown);
        } else if (found.dropped || found.removed) {
            (void)printf("%s: what an interrupted edit left was removed\n", shown);
        } else {
            (void)printf("%s: nothing to recover\n", shown);
        }
    }
    return status;
}

static const struct command {
    const char *name;
    const char *wants;
    int (*run)(int argc, char **argv); /* of the arguments; the exit status */
} commands[] = {
    {"--unmount", "MOUNTPOINT", unmount},
    {"--recover", "MODEL", recover},
};

bool command_run(int argc, char **argv, int *status)
{
    if (command_check(argc, argv, status))
        return true;
    for (size_t i = 0; argc > 1 && i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        if (argc > 2)
            *status = commands[i].run(argc - 2, argv + 2);
        else
            *status = 2;
        if (argc == 2)
            (void)fprintf(stderr, "ggufs: %s: %s is missing (see ggufs --help)\n", argv[1],
                          commands[i].wants);
        return true;
    }
    return false;
}
