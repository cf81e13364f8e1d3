/* SPDX-License-Identifier: MIT */
/* The table of virtual files, at the end of the file, and what they show: see files.h. */
#include "tree/files.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/count.h"
#include "check/file.h"
#include "check/summary.h"
#include "derive/picture.h"
#include "derive/stats.h"
#include "derive/table.h"
#include "derive/task.h"
#include "model/facts.h"
#include "model/npy.h"
#include "text/json.h"
#include "tree/ino.h"

/* ---- answers ---- */

/*
 * The most bytes that are copied to scratch to answer a read: a copy that fits the processor's second-level cache (1
 * MiB on most) speeds up the kernel's by as much as it costs.
 */
#define REPLY_COPY_MAX ((size_t)256 << 10)

/* Room for n more bytes of the answer, for the caller to fill. */
static uint8_t *reply_room(struct reply *r, size_t n)
{
    uint8_t *at = r->scratch + r->len;
    r->bytes = r->scratch;
    r->len += n;
    return at;
}

void reply_copy(struct reply *r, const void *p, size_t n)
{
    memcpy(reply_room(r, n), p, n);
}

/*
 * ---- tensor data as stored and as floats, and the model as one file ----
 *
 * Values are decoded into scratch (model/form.h). Bytes that are shown as stored are copied there,
 * which makes the kernel's own copy faster by as much; but if they are more than fit in the
 * processor's cache, the kernel gets them directly from the mapping. A read that includes missing
 * bytes is -EIO as a whole.
 */

/* Bytes [first, first + n) of a mapped file, in a part that ends at `end`. */
static int reply_mapped(struct mapped *m, uint64_t first, size_t n, uint64_t end, struct reply *r)
{
    if (n <= REPLY_COPY_MAX || r->len > 0)
        return mapped_copy_of(m, first, reply_room(r, n), n, end);
    if (first > m->map.size || n > m->map.size - first)
        return -EIO;
    mapped_want(m, first, n, end);
    r->mapped = mapped_ref(m);
    r->bytes = m->map.data + first;
    r->len = n;
    r->end = first + n;
    return mapped_check(m, first + n);
}

/* Bytes [first, last) of the tensor's data as stored. */
static int reply_stored(const struct view *v, const struct gguf_tensor *t, uint64_t first,
                        uint64_t last, struct reply *r)
{
    const uint32_t i = snapshot_tensor_no(v->snap, t);
    const size_t n = (size_t)(last - first);
    uint64_t at;
    struct mapped *m = store_mapped(v->store, i, first, n, &at);
    if (m)
        return reply_mapped(m, at, n, at + (t->nbytes - first), r);
    return store_read(v->store, i, first, reply_room(r, n), n, t->nbytes);
}

static uint64_t raw_size(const struct view *v, const struct row *row, const struct gguf_tensor *t)
{
    (void)v;
    (void)row;
    return t->nbytes;
}

static int raw_read(const struct view *v, const struct row *row, const struct gguf_tensor *t,
                    uint64_t off, size_t n, struct reply *r)
{
    (void)row;
    return reply_stored(v, t, off, off + n, r);
}

static uint64_t value_size(const struct view *v, const struct row *row, const struct gguf_tensor *t)
{
    (void)v;
    return form_size(row->form, t);
}

static int value_read(const struct view *v, const struct row *row, const struct gguf_tensor *t,
                      uint64_t off, size_t n, struct reply *r)
{
    if (!form_decodes(row->form, v->snap->gguf, t))
        return reply_stored(v, t, off, off + n, r);
    return form_read(row->form, v->snap->gguf, v->store, snapshot_tensor_no(v->snap, t), off,
                     reply_room(r, n), n);
}

static size_t npy_header_of(const struct snapshot *g, const struct row *row,
                            const struct gguf_tensor *t, struct buf *out)
{
    uint64_t dims[GGUF_MAX_DIMS];
    for (uint32_t i = 0; i < t->n_dims; i++)
        dims[i] = gguf_dim(g->gguf, t, i);
    return npy_header(out, row->form->descr, t->n_dims, dims);
}

static uint64_t npy_size(const struct view *v, const struct row *row, const struct gguf_tensor *t)
{
    struct buf m = BUF_MEASURE;
    return npy_header_of(v->snap, row, t, &m) + value_size(v, row, t);
}

static void npy_head(const struct view *v, const struct row *row, const struct gguf_tensor *t,
                     struct buf *out)
{
    (void)npy_header_of(v->snap, row, t, out);
}

static uint64_t model_size(const struct view *v, const struct row *row, const struct gguf_tensor *t)
{
    (void)row;
    (void)t;
    const struct gguf *g = v->snap->gguf;
    return max_u64(g->file_size, g->data_end) - image_cut(g);
}

/* The image for the first snapshot of a file with a reserve: the file without it. */
static int model_row_image(const struct view *v, const struct row *row, struct image **ret)
{
    const struct gguf *g = v->snap->gguf;
    (void)row;
    if (!v->file || v->snap->shards || !image_hides(g))
        return 0;
    struct image *im = image_new(NULL);
    if (!im)
        return -ENOMEM;
    const uint64_t end = model_size(v, row, NULL), cut = image_cut(g);
    image_add_header(im, g);
    image_add_zeros(im, g->data_off - cut - im->size);
    image_add_file(im, image_file(im, v->file->file[0]), im->size + cut, end - im->size);
    int r = image_end(im);
    if (r < 0)
        image_unref(im);
    else
        *ret = im;
    return r;
}

/* The first snapshot of a single-file model shows that file; others show what is made from them. */
static const struct image *model_image(const struct view *v)
{
    return v->file && !v->snap->shards ? v->file : snapshot_whole(v->snap);
}

/* Most reads are within one tensor. */
static int reply_image(const struct view *v, const struct image *im, uint64_t off, size_t n,
                       struct reply *r)
{
    uint64_t at;
    struct mapped *m = im ? image_mapped(im, v->store, off, n, &at) : NULL;
    if (m)
        return reply_mapped(m, at, n, m->map.size, r);
    return im ? image_read(im, v->store, off, reply_room(r, n), n) : -ENOMEM;
}

static int model_read(const struct view *v, const struct row *row, const struct gguf_tensor *t,
                      uint64_t off, size_t n, struct reply *r)
{
    (void)row;
    (void)t;
    return reply_image(v, model_image(v), off, n, r);
}

/* Without memory to measure it the file exists, and its size is -ENOMEM. */
static bool safetensors_row_possible(struct snapshot *g, const struct row *row)
{
    uint64_t size;
    return safetensors_size(g, row->as, &size) != -EFBIG;
}

static uint64_t safetensors_row_size(const struct view *v, const struct row *row,
                                     const struct gguf_tensor *t)
{
    (void)t;
    uint64_t size;
    return safetensors_size(v->snap, row->as, &size) < 0 ? UINT64_MAX : size;
}

static int safetensors_row_image(const struct view *v, const struct row *row, struct image **ret)
{
    return safetensors_image(v->snap, row->as, ret);
}

static int safetensors_row_read(const struct view *v, const struct row *row,
                                const struct gguf_tensor *t, uint64_t off, size_t n,
                                struct reply *r)
{
    (void)row;
    (void)t;
    return reply_image(v, v->file, off, n, r);
}

/*
 * ---- files computed from tensors when they are read (derive/work.h) ----
 *
 * Sizes are known before. part_*() are files in a tensor's directory, lines_row_*() those at the root with a line
 * per tensor; row->what says which.
 */

static uint64_t part_size(const struct view *v, const struct row *row, const struct gguf_tensor *t)
{
    if (row->what == DERIVED_SHA256)
        return HASH_HEX + 1;
    if (row->what == DERIVED_STATS)
        return STATS_TEXT;
    struct picture p = picture_of(v->snap->gguf, t);
    return picture_size(&p);
}

static int part_read(const struct view *v, const struct row *row, const struct gguf_tensor *t,
                     uint64_t off, size_t n, struct reply *r)
{
    struct result *x = work_result(r->work, v, snapshot_tensor_no(v->snap, t), row->what);
    if (!x)
        return -EAGAIN;
    reply_copy(r, x->bytes.data + off, n);
    result_unref(x);
    return 0;
}

static void part_need(const struct view *v, const struct row *row, const struct gguf_tensor *t,
                      uint64_t off, size_t n, struct need *ret)
{
    uint32_t i = snapshot_tensor_no(v->snap, t);
    (void)off;
    (void)n;
    *ret = (struct need){row->what, i, i + 1};
}

/* NULL: no memory. */
static const struct lines *lines_of(const struct view *v, const struct row *row)
{
    return lines_get(v->snap, row->what == DERIVED_SHA256 ? LINES_HASHES : LINES_STATS);
}

/* Without memory it is empty. */
static uint64_t lines_row_size(const struct view *v, const struct row *row,
                               const struct gguf_tensor *t)
{
    const struct lines *l = lines_of(v, row);
    (void)t;
    return l ? lines_size(l, v->snap) : 0;
}

static void lines_row_need(const struct view *v, const struct row *row, const struct gguf_tensor *t,
                           uint64_t off, size_t n, struct need *ret)
{
    const struct lines *l = lines_of(v, row);
    (void)t;
    *ret = (struct need){.what = row->what};
    if (l)
        lines_range(l, v->snap, off, off + n, &ret->first, &ret->last);
}

static int add_line(const struct view *v, enum derived what, uint32_t i, const struct reply *r,
                    struct buf *out)
{
    const struct gguf *g = v->snap->gguf;
    struct result *x = NULL;
    if (work_applies(v->snap, &g->tensor[i], what) && !(x = work_result(r->work, v, i, what)))
        return -EAGAIN;
    if (what == DERIVED_SHA256)
        hashes_line(v->snap, i, buf_text(&x->bytes), out);
    else
        stats_line(g, &g->tensor[i], x ? (const struct moments *)(const void *)x->bytes.data : NULL,
                   out);
    result_unref(x);
    return 0;
}

static int lines_row_read(const struct view *v, const struct row *row, const struct gguf_tensor *t,
                          uint64_t off, size_t n, struct reply *r)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT; /* the file from `at` on */
    const struct lines *l = lines_of(v, row);
    uint32_t first, last;
    int err = 0;
    (void)t;
    if (!l)
        return -ENOMEM;
    lines_range(l, v->snap, off, off + n, &first, &last);
    uint64_t at = off < l->head ? 0 : lines_begin(l, first);
    if (row->what == DERIVED_MOMENTS && at == 0)
        stats_head(&text);
    for (uint32_t i = first; i < last && err == 0; i++)
        err = add_line(v, row->what, i, r, &text);
    err = err < 0 ? err : buf_error(&text);
    if (err == 0)
        reply_copy(r, text.data + (off - at), n);
    return err;
}

/* ---- texts of a tensor, and of the whole model ---- */

static void shape_text(const struct snapshot *g, const struct gguf_tensor *t, struct buf *out)
{
    fact_shape(g->gguf, t, " ", out);
    buf_char(out, '\n');
}

static void type_text(const struct snapshot *g, const struct gguf_tensor *t, struct buf *out)
{
    (void)g;
    fact_type_name(t, out);
    buf_char(out, '\n');
}

static void offset_text(const struct snapshot *g, const struct gguf_tensor *t, struct buf *out)
{
    size_t shard;
    buf_printf(out, "%" PRIu64 "\n", snapshot_offset(g, snapshot_tensor_no(g, t), &shard));
}

static void shard_text(const struct snapshot *g, const struct gguf_tensor *t, struct buf *out)
{
    size_t shard;
    (void)snapshot_offset(g, snapshot_tensor_no(g, t), &shard);
    buf_printf(out, "%s\n", g->shards->name[shard]);
}

static void metadata_json(const struct snapshot *g, const struct gguf_tensor *t, struct buf *out)
{
    const struct gguf *m = g->gguf;
    struct json all = {.out = out};
    char name[GGUF_TYPE_NAME_MAX];
    (void)t;
    json_begin(&all, NULL, "{\n");
    for (uint32_t i = 0; i < m->n_kv; i++) {
        struct gguf_value v = gguf_value(m, &m->kv[i]);
        struct json j = {.out = out};
        if (!snapshot_shows_key(g, i))
            continue;
        json_string(json_item(&all, NULL), gguf_key(m, &m->kv[i]), m->kv[i].key_len);
        buf_str(out, ": ");
        json_begin(&j, NULL, "{");
        json_text(&j, "type", gguf_type_name(&v, name));
        json_value(json_item(&j, "value"), &v);
        json_end(&j);
    }
    json_end(&all);
    buf_char(out, '\n');
}

static void tensors_json(const struct snapshot *g, const struct gguf_tensor *t, struct buf *out)
{
    const struct gguf *m = g->gguf;
    struct json j = {.out = out};
    size_t shard;
    json_begin(&j, NULL, "[\n");
    for (uint32_t i = 0; i < m->n_tensors; i++) {
        const uint64_t off = snapshot_offset(g, i, &shard);
        t = &m->tensor[i];
        json_begin(&j, NULL, "{");
        json_string(json_item(&j, "name"), gguf_name(m, t), t->name_len);
        buf_char(json_item(&j, "type"), '"');
        fact_type_name(t, out);
        buf_char(out, '"');
        buf_char(json_item(&j, "shape"), '[');
        fact_shape(g->gguf, t, ", ", out);
        buf_char(out, ']');
        buf_printf(json_item(&j, "offset"), "%" PRIu64, off);
        buf_printf(json_item(&j, "nbytes"), "%" PRIu64, t->nbytes);
        if (g->shards)
            json_text(&j, "shard", g->shards->name[shard]);
        json_end(&j);
    }
    json_end(&j);
    buf_char(out, '\n');
}

static void tensors_txt(const struct snapshot *g, const struct gguf_tensor *t, struct buf *out)
{
    (void)t;
    table_text(g, out);
}

/* ---- what --info and --check say of the model with all edits applied ---- */

static void finding_line(void *arg, const struct check_finding *f)
{
    report_line(arg, f);
}

/* `ls -l` waits for the findings, and the disk may be a slow network: at most this much of each file is read. */
#define PADDING_MOST ((uint64_t)2 << 20)

/* Apply the rules to file number i; for a model that is not split, the rules about models too. */
static int check_one(const struct view *v, size_t i, const char *name, struct buf *out)
{
    const struct snapshot *snap = v->snap;
    const struct gguf *g = snapshot_file(snap, i);
    const struct mapped *file = v->store->file[i];
    /* This program laid out an edited file itself: bytes between its tensors need no check. */
    struct source src = {0};
    if (i > 0 && g == snap->shards->g[i] && file->map.size == g->file_size) {
        src = mapped_source(v->store->file[i]);
    } else if (i == 0 && v->file) {
        src = image_source(v->file);
        src.fd = v->file->file[0].fd;
    }
    struct check_model m = {.g = g,
                            .src = src.read ? &src : NULL,
                            .file = name,
                            .label = name,
                            .scope = snap->shards ? CHECK_FILE : CHECK_ALL,
                            .shards = snap->shards ? snap->shards->n : 0,
                            .padding_most = PADDING_MOST};
    if (i == 0 && snap->journal)
        check_tell_journal(name, finding_line, out);
    return check_rules(&m, finding_line, out);
}

static void info_text(const struct view *v, const char *file, struct buf *out)
{
    const struct shards *s = v->snap->shards;
    uint64_t missing = 0;
    for (size_t i = 0; i < snapshot_files(v->snap); i++)
        missing += header_missing(snapshot_file(v->snap, i));
    summary_text(&(struct summary){v->snap->gguf, file, s ? s->n : 0, missing}, out);
}

/* If the rules cannot be applied, report why as a finding. Without memory there is no text at all. */
static void end_findings(int r, const char *name, struct buf *out)
{
    char what[128];
    if (r == -ENOMEM && !out->err)
        out->err = r;
    if (r == 0 || r == -ENOMEM)
        return;
    (void)snprintf(what, sizeof(what), "cannot read: %s", strerror(-r));
    finding_line(out, &(struct check_finding){CHECK_ERROR, CHECK_STRUCTURE, name, what, ""});
}

static void check_text(const struct view *v, const char *file, struct buf *out)
{
    const struct shards *s = v->snap->shards;
    if (!s)
        end_findings(check_one(v, 0, file, out), file, out);
    for (size_t i = 0; s && i < s->n; i++)
        end_findings(check_one(v, i, s->name[i], out), s->name[i], out);
    if (s)
        end_findings(check_rules(&(struct check_model){.g = v->snap->gguf,
                                                       .file = s->name[0],
                                                       .label = s->name[0],
                                                       .scope = CHECK_WHOLE,
                                                       .shards = s->n},
                                 finding_line, out),
                     s->name[0], out);
}

/* ---- the table ---- */

// clang-format off
#define PIECES(n) .size = n##_size, .read = n##_read

/* Computed for a tensor, or one line per tensor. */
#define PART(w)   .what = DERIVED_##w, PIECES(part), .need = part_need
#define LINES(w)  .what = DERIVED_##w, PIECES(lines_row), .need = lines_row_need

#define SAFETENSORS(f) .as = SAFETENSORS_##f, .decodes = true, PIECES(safetensors_row), \
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
    {.name = "hashes",        .flags = ROW_WHOLE | ROW_HIDDEN, .library = task_hash_library, LINES(SHA256)},
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
    {.name = "sha256",  .flags = ROW_HIDDEN, .library = task_hash_library, PART(SHA256)},
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
