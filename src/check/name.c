/* SPDX-License-Identifier: MIT */
/* The rule about the file's name: does it follow the convention, and agree with the model? */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "check/filename.h"
#include "check/rule.h"
#include "model/split.h"

/*
 * Words compare without case; the caller has made "1.0" and "v1.0", "Llama 3" and "Llama-3" equal.
 */
static bool same(struct text a, const struct buf *b)
{
    return a.len == b->len && strncasecmp(a.at, (const char *)b->data, b->len) == 0;
}

/* The model's value for a part, if a name could contradict it. */
static void expected(const struct gguf *g, enum file_part part, struct buf *out)
{
    static const char *const key[FILE_PARTS] = {[PART_BASE] = "general.basename"};
    char label[SIZE_LABEL_MAX];
    struct params p = fact_params(g);
    if (part == PART_SIZE && (p.total == 0 || fact_shard(g)))
        return;
    if (part == PART_SIZE) {
        fact_size_label(&p, label);
        buf_str(out, label);
    } else if (part == PART_ENCODING) {
        buf_str(out, g->n_tensors && fact_file_type(g) ? fact_file_type(g) : "");
    } else if (!key[part] || fact_text(g, key[part]).at) {
        file_part_suggest(g, part, out);
    }
}

static bool part_fits(const struct gguf *g, enum file_part part, struct text says,
                      const struct buf *want)
{
    struct params p = fact_params(g);
    if (part == PART_SHARD) /* reported by the rule "split" */
        return !says.at || want->len > 0;
    if (want->len == 0)
        return true;
    if (part == PART_SIZE)
        return file_size_fits(says, &p);
    return says.at ? same(says, want) : part == PART_ENCODING;
}

/* People name files as they like; a name that says something wrong misleads them. */
static enum check_severity weight_of(enum file_part part)
{
    bool misleads = part == PART_SIZE || part == PART_ENCODING || part == PART_SHARD;
    return misleads ? CHECK_WARNING : CHECK_NOTE;
}

static void check_part(struct checker *c, enum file_part part, struct text says)
{
    CLEANUP(buf_free) struct buf want = BUF_INIT;
    char shown[SHOW_MAX], wanted[SHOW_MAX];
    expected(c->g, part, &want);
    if (buf_error(&want) || part_fits(c->g, part, says, &want))
        return;
    (void)show(wanted, want.data, want.len);
    if (says.at && want.len)
        report(c, weight_of(part), "file name", "its %s says '%s', the model '%s'",
               file_part_name[part], show(shown, says.at, says.len), wanted);
    else if (says.at)
        report(c, weight_of(part), "file name", "its %s says '%s', the model does not say",
               file_part_name[part], show(shown, says.at, says.len));
    else
        report(c, CHECK_NOTE, "file name", "it has no %s, the model says '%s'",
               file_part_name[part], wanted);
}

/* A shard has only a part of the parameters, and only the first one has the model's keys. */
static bool can_suggest(const struct gguf *g)
{
    return !fact_shard(g) || (!fact_later_shard(g) && fact_text(g, "general.size_label").at);
}

static const char suffix[] = ".gguf";

static void suggest(struct checker *c)
{
    CLEANUP(buf_free) struct buf name = BUF_INIT;
    char shown[SHOW_MAX];
    file_name_suggest(c->g, &name);
    if (c->shards) {
        name.len -= strlen(suffix);
        buf_printf(&name, "-00001-of-%05zu%s", c->shards, suffix);
    }
    if (buf_error(&name))
        return;
    (void)show(shown, name.data, name.len);
    report(c, CHECK_NOTE, "file name", "by convention it is %s", shown);
}

static int rule_size_label(struct checker *c)
{
    static const char key[] = "general.size_label";
    char label[SIZE_LABEL_MAX], shown[SHOW_MAX];
    struct text reported = fact_text(c->g, key);
    struct params p = fact_params(c->g);
    uint64_t experts;
    double params;
    if (!reported.at || p.total == 0 || fact_shard(c->g) || !fact_is_model(c->g) ||
        !file_size_parse(reported, &experts, &params) || file_size_fits(reported, &p))
        return 0;
    fact_size_label(&p, label);
    report(c, CHECK_WARNING, "key 'general.size_label'",
           "'%s', but %" PRIu64 " parameters make it '%s'", show(shown, reported.at, reported.len),
           p.total, label);
    return 0;
}

/* The name to check: for a split model without the number of the file, which is correct. */
static void whole_name(const struct checker *c, char dst[NAME_MAX + 1])
{
    size_t n = strlen(c->file), tail = c->shards && n > SPLIT_TAIL ? SPLIT_TAIL : 0;
    (void)snprintf(dst, NAME_MAX + 1, "%.*s%s", (int)(n - tail), c->file, tail ? suffix : "");
}

static int rule_file_name(struct checker *c)
{
    struct file_name f;
    char name[NAME_MAX + 1];
    if (!c->file || file_name_is_hash(c->file))
        return 0;
    whole_name(c, name);
    if (!file_name_parse(name, &f)) {
        if (can_suggest(c->g))
            suggest(c);
        else
            report(c, CHECK_NOTE, "file name", "does not follow the naming convention");
        return 0;
    }
    for (int i = 0; i < FILE_PARTS; i++)
        check_part(c, (enum file_part)i, f.part[i]);
    if (c->reported && can_suggest(c->g))
        suggest(c);
    return 0;
}

const struct rule name_rules[] = {
    {"size-label", rule_size_label, CHECK_WHOLE},
    {"file-name", rule_file_name, CHECK_WHOLE},
    {0},
};
