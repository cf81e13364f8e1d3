/* SPDX-License-Identifier: MIT */
/* What all files of this floor use: see core.h. */
#include "live/core.h"

#include <stdarg.h>
#include <string.h>

void live_log(const struct live *l, int priority, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    logger_vlog(&l->opt.log, priority, fmt, ap);
    va_end(ap);
}

bool has_nul_names(const struct gguf *g)
{
    for (uint32_t i = 0; i < g->n_kv; i++)
        if (memchr(gguf_key(g, &g->kv[i]), 0, g->kv[i].key_len))
            return true;
    return false;
}
