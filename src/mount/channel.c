/* SPDX-License-Identifier: MIT */
/* What commands ask of a daemon: see channel.h. */
#include "mount/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/split.h"

/* The first file of a split model, given any of its files; NULL: it is not split. free() it. */
static char *first_shard(const char *path)
{
    struct split s;
    char *first = NULL;
    if (split_find(path, &s) == 0) {
        first = s.n ? split_path(&s, 0) : NULL;
        split_free(&s);
    }
    return first;
}

/* The real path of a model: of a split one, of its first shard. A link to one shard may be beside no
 * others. free() it. */
static char *real_model(const char *operand)
{
    char *first = first_shard(operand);
    char *real = realpath(first ? first : operand, NULL);
    if (real && !first && (first = first_shard(real))) {
        free(real);
        real = realpath(first, NULL);
    }
    free(first);
    return real;
}

static int not_asked(const struct mount *m, struct err *e)
{
    char name[PROCESS_NAME_MAX];
    long user = mount_number(m->super, "user_id");
    if (geteuid() != 0 && user >= 0 && (uid_t)user != geteuid())
        return err_set(e, -EPERM,
                       "it is in a mount of user %s, whose daemon only that user and root can ask",
                       user_name(name, user));
    return err_set(
        e, -ESRCH,
        "its daemon cannot be asked: it has no control socket, or is in another container");
}

/* The daemon of the mount that the operand is in, or the mount point of, if there is such a mount. */
static int find_by_mount(const struct mounts *ms, const char *operand, struct channel *c,
                         struct err *e)
{
    const struct mount *m = mounts_typed(ms, operand);
    const struct daemon *d = m ? daemons_silent(&c->daemons, m) : NULL;
    if (d) /* nothing in it can be looked at */
        return daemon_no_answer(d, e);
    char *path = mounts_path(operand);
    m = path ? mounts_around(ms, path) : NULL;
    d = m ? daemons_silent(&c->daemons, m) : NULL;
    int r = d ? daemon_no_answer(d, e) : 0;
    c->daemon = m && mount_is_fuse(m) && !d ? daemons_of(&c->daemons, m) : NULL;
    if (r == 0 && m && mount_is_ggufs(m) && !c->daemon)
        r = not_asked(m, e);
    if (c->daemon && asprintf(&c->place, "%s/%s", m->root, path + strlen(m->at)) < 0)
        r = err_set(e, -ENOMEM, "no memory");
    free(path);
    return r;
}

/* The daemon that has locked this file of a model, and knows it by this path. */
static int find_by_file(char *real, struct channel *c, struct err *e)
{
    CLEANUP(buf_free) struct buf said = BUF_INIT;
    struct file_id id;
    int fd = open(real, O_PATH | O_CLOEXEC);
    bool known = fd >= 0 && file_id_of(fd, &id);
    if (fd >= 0)
        (void)close(fd);
    daemons_free(&c->daemons);
    int r = daemons_find(&c->daemons, known ? &id : NULL);
    if (r < 0 || asprintf(&c->place, ":%s", real) < 0)
        return err_set(e, r < 0 ? r : -ENOMEM, "cannot ask daemons: %s",
                       strerror(r < 0 ? -r : ENOMEM));
    for (size_t i = 0; i < c->daemons.n && !c->daemon; i++) {
        c->daemon = &c->daemons.daemon[i];
        if (!c->daemon->status.holds || channel_ask(c, "has", &said, &(struct err){0}) < 0)
            c->daemon = NULL;
    }
    return 0;
}

int channel_open(const char *operand, struct channel *c, struct err *e)
{
    struct mounts ms;
    struct stat st;
    *c = (struct channel){0};
    int r = mounts_load(&ms, 0);
    if (r == 0)
        r = daemons_find(&c->daemons, NULL);
    r = r < 0 ? err_set(e, r, "cannot list mounts: %s", strerror(-r))
              : find_by_mount(&ms, operand, c, e);
    mounts_free(&ms);
    if (r < 0 || c->daemon)
        return r;
    if (stat(operand, &st) == 0 && S_ISDIR(st.st_mode))
        return err_set(e, -EINVAL, "it is a directory, and not a mount of a model");
    char *real = real_model(operand);
    r = real ? find_by_file(real, c, e) : 0;
    free(real);
    return r;
}

int channel_ask(const struct channel *c, const char *verb, struct buf *said, struct err *e)
{
    CLEANUP(buf_free) struct buf request = BUF_INIT;
    buf_printf(&request, "%s ", verb);
    path_escape(&request, c->place);
    buf_char(&request, '\0');
    if (buf_error(&request))
        return err_set(e, buf_error(&request), "no memory");
    return daemon_ask(c->daemon, buf_text(&request), said, NULL, NULL, e);
}

void channel_close(struct channel *c)
{
    daemons_free(&c->daemons);
    free(c->place);
}
