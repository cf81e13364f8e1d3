/* SPDX-License-Identifier: MIT */
/* The table of virtual files: see files.h. */
#include "tree/files.h"

#include <assert.h>
#include <string.h>

#include "base/count.h"
#include "derive/picture.h"
#include "tree/ino.h"

// clang-format off
#define PIECES(n) .size = n##_size, .read = n##_read

/* Computed of a tensor, or a line per tensor. */
#define PART(w)   .what = DERIVED_##w, PIECES(part), .need = part_need
#define LINES(w)  .what = DERIVED_##w, PIECES(lines_row), .need = lines_row_need

#define SAFETENSORS(f) .as = SAFETENSORS_##f, PIECES(safetensors_row), \
    .possible = safetensors_row_possible, .image = safetensors_row_image

const struct row files_root[] = {
    {.name = "metadata",      .flags = ROW_DIR},
    {.name = "tensors",       .flags = ROW_DIR},
    {.name = "metadata.json", .flags = ROW_WHOLE, .text = metadata_json},
    {.name = "tensors.json",  .flags = ROW_WHOLE, .text = tensors_json},
    {.name = "info",          .flags = ROW_WHOLE | ROW_STATE, .report = info_text},
    {.name = "model.gguf",    .flags = ROW_WHOLE | ROW_EXTRA, PIECES(model), .image = model_row_image},
    {.name = "check",         .flags = ROW_WHOLE | ROW_KEPT, .report = check_text},
    {.name = "tensors.txt",   .flags = ROW_WHOLE, .text = tensors_txt},
    {.name = "model.safetensors", .flags = ROW_WHOLE | ROW_EXTRA, SAFETENSORS(OWN)},
    {.name = "model.f32.safetensors", .flags = ROW_WHOLE | ROW_HIDDEN, SAFETENSORS(F32)},
    {.name = "model.f16.safetensors", .flags = ROW_WHOLE | ROW_HIDDEN, SAFETENSORS(F16)},
    {.name = "model.bf16.safetensors", .flags = ROW_WHOLE | ROW_HIDDEN, SAFETENSORS(BF16)},
    {.name = "stats.tsv",     .flags = ROW_WHOLE | ROW_HIDDEN, LINES(MOMENTS)},
    {.name = "hashes",        .flags = ROW_WHOLE | ROW_HIDDEN, .library = digest_library, LINES(SHA256)},
};

#define VALUES(n) .form = &form_##n, PIECES(value)
#define NPY(n)    .form = &form_##n, .size = npy_size, .head = npy_head, .read = value_read

const struct row files_tensor[] = {
    {.name = "raw",     PIECES(raw)},
    {.name = "f32",     .flags = ROW_VALUES | ROW_EXTRA, VALUES(f32)},
    {.name = "f32.npy", .flags = ROW_VALUES | ROW_EXTRA, NPY(f32)},
    {.name = "shape",   .text = shape_text},
    {.name = "type",    .text = type_text},
    {.name = "offset",  .flags = ROW_MOVES | ROW_EXTRA, .text = offset_text},
    {.name = "f16",     .flags = ROW_VALUES | ROW_HIDDEN, VALUES(f16)},
    {.name = "f16.npy", .flags = ROW_VALUES | ROW_HIDDEN, NPY(f16)},
    {.name = "bf16",    .flags = ROW_VALUES | ROW_HIDDEN, VALUES(bf16)},
    {.name = "shard",   .flags = ROW_SPLIT | ROW_EXTRA, .text = shard_text},
    {.name = "stats",   .flags = ROW_VALUES | ROW_HIDDEN, PART(STATS)},
    {.name = "heatmap.png", .flags = ROW_VALUES | ROW_HIDDEN, .library = picture_library, PART(PICTURE)},
    {.name = "sha256",  .flags = ROW_HIDDEN, .library = digest_library, PART(SHA256)},
};
// clang-format on

_Static_assert(COUNT(files_root) <= SNAPSHOT_ROWS && COUNT(files_root) <= INO_MAX_ROWS &&
                   COUNT(files_tensor) <= INO_MAX_ROWS,
               "node numbers have room for INO_MAX_ROWS rows");

size_t files_count(enum files_where where)
{
    return where == FILES_ROOT ? COUNT(files_root) : COUNT(files_tensor);
}

bool files_exists(const struct snapshot *g, const struct row *row, const struct gguf_tensor *t)
{
    if (row->flags & ROW_SPLIT && !g->shards)
        return false;
    if (row->library && !row->library())
        return false;
    return !(row->flags & ROW_VALUES) || quant_has_values(gguf_type(t), g->gguf->fmt.big);
}

static bool is_possible(struct snapshot *g, const struct row *row)
{
    return !row->possible || row->possible(g, row);
}

bool files_listed(struct snapshot *g, const struct row *row, const struct gguf_tensor *t,
                  enum files_views views)
{
    static const unsigned left_out[] = {
        [FILES_STD] = ROW_HIDDEN, [FILES_RAW] = ROW_HIDDEN | ROW_EXTRA, [FILES_ALL] = 0};
    return files_exists(g, row, t) && !(row->flags & left_out[views]) && is_possible(g, row);
}

int files_find(struct snapshot *g, enum files_where where, const struct gguf_tensor *t,
               const char *name)
{
    for (size_t i = 0; i < files_count(where); i++) {
        const struct row *row = files_row(where, i);
        if (strcmp(row->name, name) == 0)
            return files_exists(g, row, t) && is_possible(g, row) ? (int)i : -1;
    }
    return -1;
}
