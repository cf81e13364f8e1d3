/* SPDX-License-Identifier: MIT */
/* Makes a directory of models: see shelf_top.h. */
#include "shelf_top.h"

#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char shelf_top[] = "/tmp/ggufs-shelf-XXXXXX";

void shelf_top_make(void)
{
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(shelf_top));
}

static void make_folders(const char *path)
{
    char part[4096];
    for (const char *p = strchr(path, '/'); p; p = strchr(p + 1, '/')) {
        (void)snprintf(part, sizeof(part), "%.*s", (int)(p - path), path);
        if (part[0])
            CU_ASSERT_TRUE_FATAL(mkdir(part, 0755) == 0 || errno == EEXIST);
    }
}

void shelf_top_add(const char *what, const char *name, const char *text)
{
    char path[4096];
    (void)snprintf(path, sizeof(path), "%s/%s", shelf_top, name);
    make_folders(path);
    if (strcmp(what, "link") == 0) {
        CU_ASSERT_EQUAL_FATAL(symlink(text, path), 0);
    } else if (strcmp(what, "fifo") == 0) {
        CU_ASSERT_EQUAL_FATAL(mkfifo(path, 0644), 0);
    } else if (strcmp(what, "dir") == 0) {
        CU_ASSERT_EQUAL_FATAL(mkdir(path, 0755), 0);
    } else {
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        CU_ASSERT_EQUAL_FATAL(write(fd, text, strlen(text)), (ssize_t)strlen(text));
        (void)close(fd);
    }
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

void shelf_top_remove(void)
{
    CU_ASSERT_EQUAL(nftw(shelf_top, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    (void)strcpy(shelf_top + strlen(shelf_top) - 6, "XXXXXX");
}
