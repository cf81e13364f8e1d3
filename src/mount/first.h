/* SPDX-License-Identifier: MIT */
/*
 * The first exchange with the kernel, which negotiates the protocol.
 *
 * Threads: one, before any other request is answered.
 */
#ifndef MOUNT_FIRST_H
#define MOUNT_FIRST_H

#include <fuse_lowlevel.h>

/* Answer the kernel's first request. */
void first_exchange(struct fuse_session *se);

#endif
