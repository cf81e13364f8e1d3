/* SPDX-License-Identifier: MIT */
/* Probes and removes mounts from outside of their daemon: see takedown.h. */
#include "mount/takedown.h"

#include <errno.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mount/aside.h"
#include "mount/catch.h"

/* statfs(2) always asks the daemon. For other users the kernel itself replies, with zeros. */
static int ask(const void *at, int out)
{
    struct statfs fs;
    (void)out;
    if (statfs(at, &fs) == 0)
        return fs.f_bsize ? MOUNT_ALIVE : MOUNT_UNKNOWN;
    return errno == ENOTCONN || errno == ECONNABORTED ? MOUNT_DEAD : MOUNT_UNKNOWN;
}

enum mount_life mount_life(const char *at, int ms)
{
    int r = aside(ask, at, ms, NULL);
    return r < 0 ? MOUNT_UNKNOWN : (enum mount_life)r;
}

static int run_fusermount(const char *at, bool lazy, struct err *e)
{
    char said[256];
    int status = 0;
    struct caught c = catch_begin();
    pid_t pid = fork();
    if (pid == 0) {
        (void)execlp("fusermount3", "fusermount3", lazy ? "-uz" : "-u", "--", at, (char *)NULL);
        _exit(127);
    }
    int why = pid < 0 || waitpid(pid, &status, 0) < 0 ? errno : 0;
    catch_end(&c, said, sizeof(said));
    if (why)
        return err_set(e, -why, "cannot run fusermount3: %s", strerror(why));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return err_set(e, -ENOENT, "cannot run fusermount3");
    int r = strstr(said, strerror(EBUSY)) ? -EBUSY : -EPERM;
    return err_set(e, r, "fusermount3 -u failed%s%s", said[0] ? ": " : "", said);
}

int mount_take_down(const char *at, bool lazy, struct err *e)
{
    if (umount2(at, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0)
        return 0;
    if (errno == EPERM)
        return run_fusermount(at, lazy, e);
    return err_set(e, -errno, "cannot unmount: %s", strerror(errno));
}
