/* SPDX-License-Identifier: MIT */
/* What models need, by architecture: see needs.h. */
#include "check/needs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/count.h"

/* need_tensors, need_keys, need_shapes: made of needs.tsv. */
#include "check/needs-table.inc"

const size_t need_tensors_len = COUNT(need_tensors);
const size_t need_shapes_len = COUNT(need_shapes);
const size_t need_keys_len = COUNT(need_keys);

bool tensor_block(const char *name, size_t n, uint64_t *number, size_t *rest)
{
    size_t i = 4;
    if (n < 7 || memcmp(name, "blk.", 4) != 0)
        return false;
    for (*number = 0; i < n && i < 22 && name[i] >= '0' && name[i] <= '9'; i++)
        *number = *number * 10 + (uint64_t)(name[i] - '0');
    *rest = i + 1;
    return i > 4 && i < n - 1 && name[i] == '.';
}

bool needs_list(const char *list, struct text word)
{
    for (size_t n; word.at && *list; list += n + (list[n] == ' ')) {
        n = strcspn(list, " ");
        if (n == word.len && memcmp(list, word.at, n) == 0)
            return true;
    }
    return false;
}

bool needs_know(struct text arch)
{
    for (size_t i = 0; i < need_tensors_len; i++)
        if (need_tensors[i].block[0] == '\0' && needs_list(need_tensors[i].archs, arch))
            return true;
    return false;
}

/* A vocabulary without tensors is a model too, and a shard has only a part of them. */
bool needs_apply(const struct gguf *g)
{
    return g->n_tensors && !fact_shard(g) && fact_is_model(g) &&
           needs_know(fact_text(g, "general.architecture"));
}

uint64_t needs_first_block(const struct gguf *g)
{
    uint64_t count, nextn;
    static const char first[] = "blk.0.attn_norm.weight";
    if (!fact_arch_uint(g, "block_count", &count) ||
        !fact_arch_uint(g, "nextn_predict_layers", &nextn) || nextn == 0 || nextn >= count ||
        gguf_find_tensor(g, first, strlen(first)) != UINT32_MAX)
        return 0;
    return count - nextn;
}

static bool ends(const char *name, size_t n, const char *tail)
{
    size_t len = strlen(tail);
    return n > len && memcmp(name + n - len, tail, len) == 0;
}

/* "blk.7.attn_q.weight" is "attn_q" of 7, "output.weight" ".output". */
bool needs_name(const char *name, size_t n, uint64_t *block, char dst[NEED_NAME_MAX])
{
    static const char weight[] = ".weight", bias[] = ".bias";
    size_t skip = n > 4 && (memcmp(name, "enc.", 4) == 0 || memcmp(name, "dec.", 4) == 0) ? 4 : 0;
    size_t rest;
    bool inside = tensor_block(name + skip, n - skip, block, &rest);
    if (inside) {
        name += skip + rest;
        n -= skip + rest;
    }
    if (n + 3 > NEED_NAME_MAX)
        return false;
    bool weights = ends(name, n, weight), none = !weights && !ends(name, n, bias);
    (void)snprintf(dst, NEED_NAME_MAX, "%s%.*s%s", inside ? "" : ".",
                   (int)(weights ? n - strlen(weight) : n), name, none ? "~" : "");
    return true;
}
