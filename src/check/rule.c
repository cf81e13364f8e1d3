/* SPDX-License-Identifier: MIT */
/* Shared by the rules: see rule.h. */
#include "check/rule.h"

#include <stdarg.h>
#include <stdio.h>

void report(struct checker *c, enum check_severity s, const char *where, const char *fmt, ...)
{
    char what[1024];
    va_list ap;
    c->last = s;
    if (c->reported++ >= CHECK_MOST)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    c->sink(c->arg, &(struct check_finding){s, c->rule, c->label, what, where});
}

void report_rest(const struct checker *c)
{
    char what[64];
    if (c->reported <= CHECK_MOST)
        return;
    (void)snprintf(what, sizeof(what), "%u more of these", c->reported - CHECK_MOST);
    c->sink(c->arg, &(struct check_finding){c->last, c->rule, c->label, what, ""});
}

const char *where_key(const struct gguf *g, uint32_t i, char dst[WHERE_MAX])
{
    char name[SHOW_MAX];
    (void)snprintf(dst, WHERE_MAX, "key '%s'",
                   show(name, gguf_key(g, &g->kv[i]), g->kv[i].key_len));
    return dst;
}

const char *where_tensor(const struct gguf *g, uint32_t i, char dst[WHERE_MAX])
{
    char name[SHOW_MAX];
    (void)snprintf(dst, WHERE_MAX, "tensor '%s'",
                   show(name, gguf_name(g, &g->tensor[i]), g->tensor[i].name_len));
    return dst;
}

const char *where_bytes(uint64_t first, uint64_t last, char dst[WHERE_MAX])
{
    (void)snprintf(dst, WHERE_MAX, "bytes %llu to %llu", (unsigned long long)first,
                   (unsigned long long)last - 1);
    return dst;
}
