/* SPDX-License-Identifier: MIT */
/* A file to be checked: see part.h. */
#include "check/part.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf/sniff.h"

const char *part_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

void tell_err(struct checker *c, const struct err *e)
{
    char where[sizeof(e->msg)];
    memcpy(where, e->msg, e->where);
    where[e->where] = '\0';
    tell(c, CHECK_ERROR, where, "%s", e->msg + (e->where ? e->where + 2 : 0));
}

static void on_fault(void *arg, const struct err *e)
{
    tell_err(arg, e);
}

static int open_dir(const char *real, struct err *e)
{
    size_t n = (size_t)(part_name(real) - real);
    char *dir = strndup(real, n);
    int fd = dir ? open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    int r = dir ? -errno : -ENOMEM;
    free(dir);
    return fd >= 0 ? fd : err_set(e, r, "cannot open its folder: %s", strerror(-r));
}

static int open_file(struct part *p, struct err *e)
{
    struct stat st;
    char *real = realpath(p->path, NULL);
    if (!real)
        return sniff_no_file(p->path, -errno, e);
    bool folder = stat(real, &st) == 0 && S_ISDIR(st.st_mode);
    int r = folder ? sniff_folder(e) : open_dir(real, e);
    if (r >= 0) {
        int dir = r;
        r = edit_file_open(&p->file, &sys_libc, dir, part_name(real), false, e);
        if (r == 0)
            r = edit_overlay(&p->file, &p->overlay, e);
        (void)close(dir);
        p->file.dir = -1;
    }
    free(real);
    return r < 0 ? r : edit_overlay_source(&p->overlay, &p->file, &p->src, e);
}

static int parse(struct part *p, struct checker *structure, struct err *e)
{
    struct err first = {0};
    int r = gguf_parse(&p->src, 0, &p->g, &first);
    if (r == 0)
        return 0;
    p->faults = true;
    unsigned told = structure->told;
    (void)gguf_parse_faults(&p->src, on_fault, structure, &p->g, e);
    if (structure->told == told && e->code == 0) /* a failure of the medium or of memory */
        *e = first;
    return r;
}

int part_open_file(char *path, struct part *ret, struct err *e)
{
    *ret = (struct part){.path = path, .file = {.fd = -1, .sys = &sys_libc}};
    return open_file(ret, e);
}

int part_open(char *path, struct checker *structure, struct part *ret, struct err *e)
{
    int r = part_open_file(path, ret, e);
    return r < 0 ? r : parse(ret, structure, e);
}

void part_free(struct part *p)
{
    gguf_free(p->g);
    edit_overlay_free(&p->overlay);
    if (p->file.fd >= 0)
        edit_file_close(&p->file);
    free(p->path);
    *p = (struct part){.file = {.fd = -1}};
}
