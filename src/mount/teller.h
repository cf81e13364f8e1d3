/* SPDX-License-Identifier: MIT */
/*
 * Rights of a model's file that change while it is mounted. The kernel keeps attributes, and checks opens by
 * these: a thread that holds nothing makes it drop the attributes of each node where they are others now. From
 * then on the daemon itself checks each open too, as the kernel may have let it pass before.
 *
 *     struct teller t = {.shelf = shelf, .session = se, .control = control};
 *     teller_look(&t, node);             before a call about a node
 *     r = teller_check(&t, req, node, 04);       before one that opens it
 *
 * Threads: any. control_leave() waits for what has begun.
 */
#ifndef MOUNT_TELLER_H
#define MOUNT_TELLER_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <stdatomic.h>

#include "shelf/shelf.h"

struct control;

/* Borrowed. */
struct teller {
    struct shelf *shelf;
    struct fuse_session *session;
    struct control *control;
    atomic_bool checks;
};

void teller_look(struct teller *t, uint64_t node);
/* wanted: bits of 07. 0, -EACCES. */
int teller_check(struct teller *t, fuse_req_t req, uint64_t node, mode_t wanted);

#endif
