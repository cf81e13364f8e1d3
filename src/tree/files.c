/* SPDX-License-Identifier: MIT */
/* Produces the contents of the virtual files, whose table is at the end: see files.h. */
#include "tree/files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "check/check.h"
#include "check/summary.h"
#include "derive/stats.h"
#include "derive/task.h"
#include "derive/view.h"
#include "model/facts.h"
#include "text/json.h"

/* ---- answers ---- */

/*
 * Maximum number of bytes that are copied to scratch to answer a read. A copy that fits in the
 * processor's second-level cache (1 MiB on most) speeds up the kernel's own copy by as much as it
 * costs.
 */
#define REPLY_COPY_MAX ((size_t)256 << 10)

/* Make room for n more bytes in the answer and return it for the caller to fill. */
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
 * Values are decoded into scratch (model/store.h). Bytes that are shown as stored are copied there,
 * at no net cost, because the kernel's own copy then takes less time. If the bytes do not fit in
 * the processor's cache, the kernel reads them directly from the mapping. A read that includes
 * missing bytes fails with -EIO as a whole.
 */

/* Reply with bytes [first, first + n) of a mapped file; the part that contains them ends at
 * `end`. */
static int reply_mapped(struct mapped *m, uint64_t first, size_t n, uint64_t end, struct reply *r)
{
    if (n <= REPLY_COPY_MAX || r->len > 0)
        return mapped_copy(m, first, reply_room(r, n), n, end);
    if (first + n > m->map.size)
        return -EIO;
    mapped_want(m, first, n, end);
    r->mapped = REF(m);
    r->bytes = m->map.data + first;
    r->len = n;
    r->end = first + n;
    return mapped_check(m, first + n);
}

/* Reply with bytes [off, off + n) of the tensor's data as stored. */
static int reply_stored(const struct about *a, uint64_t off, size_t n, struct reply *r)
{
    const uint32_t i = snapshot_tensor_no(a->v->snap, a->t);
    uint64_t at;
    struct mapped *m = store_mapped(a->v->store, i, off, n, &at);
    if (m)
        return reply_mapped(m, at, n, at + (a->t->nbytes - off), r);
    return store_read(a->v->store, i, off, reply_room(r, n), n, a->t->nbytes);
}

bool files_decodes(const struct about *a)
{
    return a->row->flags & ROW_SAFETENSORS ||
           (a->row->form && form_decodes(a->row->form, a->v->snap->gguf, a->t));
}

/* The rows of a tensor are its views, and then others. */
static enum tensor_view view_of(const struct about *a)
{
    return (enum tensor_view)(a->row - files_tensor);
}

static struct tensor_base base_of(const struct about *a)
{
    return (struct tensor_base){.v = *a->v, .t = a->t, .big = a->v->snap->gguf->fmt.big};
}

static uint64_t tensor_size(const struct about *a)
{
    const struct tensor_base b = base_of(a);
    return tensor_view_size(&b, view_of(a));
}

static void view_head(const struct about *a, struct buf *out)
{
    const struct tensor_base b = base_of(a);
    tensor_view_head(&b, view_of(a), out);
}

static int tensor_read(const struct about *a, uint64_t off, size_t n, struct reply *r)
{
    const struct tensor_base b = base_of(a);
    return a->decodes || tensor_views[view_of(a)].npy
               ? tensor_view_read(&b, view_of(a), off, reply_room(r, n), n)
               : reply_stored(a, off, n, r);
}

static uint64_t model_size(const struct about *a)
{
    const struct gguf *g = a->v->snap->gguf;
    return max_u64(g->file_size, g->data_end) - image_cut(g);
}

/* Get the image of the model. The first snapshot of a single-file model shows that file, without
 * its reserve; all others show an image made from the snapshot. */
static int model_image(const struct about *a, struct image **ret)
{
    const struct gguf *g = a->v->snap->gguf;
    struct image *file = a->v->snap->shards ? NULL : a->v->file;
    if (!file || !image_hides(g)) {
        file = file ? file : snapshot_whole(a->v->snap);
        if (!file)
            return -ENOMEM;
        *ret = REF(file);
        return 0;
    }
    struct image *im = image_new(NULL);
    if (!im)
        return -ENOMEM;
    const uint64_t end = model_size(a), cut = image_cut(g);
    image_add_header(im, g);
    image_add_zeros(im, g->data_off - cut - im->size);
    image_add_file(im, image_file(im, file->file[0]), im->size + cut, end - im->size);
    int r = image_end(im);
    if (r < 0)
        image_unref(im);
    else
        *ret = im;
    return r;
}

/* Read from a row that has an image. Most reads are within one tensor. */
static int image_row_read(const struct about *a, uint64_t off, size_t n, struct reply *r)
{
    const struct image *im = a->v->file;
    uint64_t at;
    struct mapped *m = image_mapped(im, a->v->store, off, n, &at);
    if (m)
        return reply_mapped(m, at, n, m->map.size, r);
    return image_read(im, a->v->store, off, reply_room(r, n), n);
}

static uint64_t safetensors_row_size(const struct about *a)
{
    struct image *im = NULL;
    const uint64_t size =
        safetensors_image(a->v->snap, a->row->as, &im) < 0 ? UINT64_MAX : im->size;
    image_unref(im);
    return size;
}

static int safetensors_row_image(const struct about *a, struct image **ret)
{
    return safetensors_image(a->v->snap, a->row->as, ret);
}

/*
 * ---- files computed from tensors when they are read (derive/work.h) ----
 *
 * Sizes are known in advance. part_*() handle files in a tensor's directory, lines_row_*() those at
 * the root that have a line per tensor; row->what names the result.
 */

static uint64_t part_size(const struct about *a)
{
    if (a->row->what == DERIVED_SHA256)
        return HASH_HEX + 1;
    if (a->row->what == DERIVED_STATS)
        return STATS_TEXT;
    struct picture p = picture_of(a->v->snap->gguf, a->t);
    return picture_size(&p);
}

static int part_read(const struct about *a, uint64_t off, size_t n, struct reply *r)
{
    struct result *x =
        work_result(r->work, a->v, snapshot_tensor_no(a->v->snap, a->t), a->row->what);
    if (!x)
        return -EAGAIN;
    reply_copy(r, x->bytes.data + off, n);
    result_unref(x);
    return 0;
}

static uint64_t lines_row_size(const struct about *a)
{
    uint32_t first, last;
    uint64_t at;
    return lines_find(a->v->snap, a->row->what, 0, 0, &first, &last, &at);
}

void files_need(const struct about *a, uint64_t off, size_t n, uint32_t *first, uint32_t *last)
{
    *first = a->t ? snapshot_tensor_no(a->v->snap, a->t) : 0;
    *last = *first + 1;
    if (!a->t)
        (void)lines_find(a->v->snap, a->row->what, off, off + n, first, last, &(uint64_t){0});
}

static int add_line(const struct about *a, uint32_t i, const struct reply *r, struct buf *out)
{
    const struct snapshot *g = a->v->snap;
    const struct gguf_tensor *t = &g->gguf->tensor[i];
    struct result *x = NULL;
    if (work_applies(g, t, a->row->what) && !(x = work_result(r->work, a->v, i, a->row->what)))
        return -EAGAIN;
    if (a->row->what == DERIVED_SHA256)
        hashes_line(g, i, buf_text(&x->bytes), out);
    else
        stats_line(g->gguf, t, x ? (const struct moments *)(const void *)x->bytes.data : NULL, out);
    result_unref(x);
    return 0;
}

static int lines_row_read(const struct about *a, uint64_t off, size_t n, struct reply *r)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT; /* the content of the file from `at` on */
    uint32_t first, last;
    uint64_t at;
    int err = 0;
    (void)lines_find(a->v->snap, a->row->what, off, off + n, &first, &last, &at);
    if (at == 0 && a->row->what == DERIVED_MOMENTS)
        stats_head(&text);
    for (uint32_t i = first; i < last && err == 0; i++)
        err = add_line(a, i, r, &text);
    err = err < 0 ? err : buf_error(&text);
    if (err == 0)
        reply_copy(r, text.data + (off - at), n);
    return err;
}

/* ---- texts of a tensor, and of the whole model ---- */

static uint64_t tensor_offset(const struct about *a, size_t *shard)
{
    return snapshot_offset(a->v->snap, snapshot_tensor_no(a->v->snap, a->t), shard);
}

static void offset_text(const struct about *a, struct buf *out)
{
    buf_printf(out, "%" PRIu64 "\n", tensor_offset(a, &(size_t){0}));
}

static void shard_text(const struct about *a, struct buf *out)
{
    size_t shard;
    (void)tensor_offset(a, &shard);
    buf_printf(out, "%s\n", a->v->snap->shards->name[shard]);
}

static void metadata_json(const struct about *a, struct buf *out)
{
    const struct gguf *m = a->v->snap->gguf;
    struct json all = {.out = out};
    char name[GGUF_TYPE_NAME_MAX];
    json_begin(&all, NULL, "{\n");
    for (uint32_t i = 0; i < m->n_kv; i++) {
        struct gguf_value v = gguf_value(m, &m->kv[i]);
        struct json j = {.out = out};
        if (!snapshot_shows_key(a->v->snap, i))
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

static void tensors_json(const struct about *a, struct buf *out)
{
    const struct snapshot *g = a->v->snap;
    const struct gguf *m = g->gguf;
    struct json j = {.out = out};
    size_t shard;
    json_begin(&j, NULL, "[\n");
    for (uint32_t i = 0; i < m->n_tensors; i++) {
        const uint64_t off = snapshot_offset(g, i, &shard);
        const struct gguf_tensor *t = &m->tensor[i];
        json_begin(&j, NULL, "{");
        json_string(json_item(&j, "name"), gguf_name(m, t), t->name_len);
        buf_char(json_item(&j, "type"), '"');
        fact_type_name(t, out);
        buf_char(out, '"');
        buf_char(json_item(&j, "shape"), '[');
        fact_shape(m, t, ", ", out);
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

static void tensors_txt(const struct about *a, struct buf *out)
{
    table_text(a->v->snap, out);
}

/* ---- the reports of --info and --check, with all edits applied ---- */

static void finding_line(void *arg, const struct check_finding *f)
{
    report_line(arg, f);
}

/* Apply the rules to file number i; if the model is not split, also apply the rules about whole
 * models. */
static int check_one(const struct view *v, size_t i, const char *name, struct buf *out)
{
    const struct snapshot *snap = v->snap;
    const struct gguf *g = snapshot_file(snap, i);
    /* This program itself laid out an edited file, so the bytes between its tensors need no
     * check. */
    struct source src = {0};
    if (i > 0) {
        src = mapped_source(v->store->file[i]);
    } else if (v->file) {
        src = image_source(v->file);
        src.fd = v->file->file[0].fd;
    }
    struct check_model m = {.g = g,
                            .src = src.read ? &src : NULL,
                            .file = name,
                            .label = name,
                            .scope = snap->shards ? CHECK_FILE : CHECK_ALL,
                            .shards = snap->shards ? snap->shards->n : 0};
    return check_rules(&m, finding_line, out);
}

static void info_text(const struct about *a, struct buf *out)
{
    const struct snapshot *g = a->v->snap;
    struct summary s = {.g = g->gguf, .file = g->file};
    if (g->shards) {
        s.shards = g->shards->all;
        s.absent = g->shards->all - g->shards->n;
    }
    for (size_t i = 0; i < snapshot_files(g); i++)
        s.missing += summary_missing(snapshot_file(g, i));
    summary_text(&s, out);
}

/* If the rules could not be applied, report the reason as a finding. If out of memory, write no
 * text at all. */
static void end_findings(int r, const char *name, struct buf *out)
{
    char what[128];
    if (r == -ENOMEM)
        out->err = r;
    else if (r < 0) {
        (void)snprintf(what, sizeof(what), "cannot read: %s", strerror(-r));
        finding_line(out, &(struct check_finding){CHECK_ERROR, CHECK_STRUCTURE, name, what, ""});
    }
}

static void findings_text(const struct about *a, struct buf *out)
{
    const struct snapshot *g = a->v->snap;
    const struct shards *s = g->shards;
    if (!s) {
        end_findings(check_one(a->v, 0, g->file, out), g->file, out);
        return;
    }
    for (size_t i = 0; i < s->n; i++)
        end_findings(check_one(a->v, i, s->name[i], out), s->name[i], out);
    if (s->n < s->all) {
        char what[64];
        (void)snprintf(what, sizeof(what), "%zu of %zu files are missing", s->all - s->n, s->all);
        finding_line(out, &(struct check_finding){CHECK_ERROR, "split", s->name[0], what, ""});
        return;
    }
    const struct check_model whole = {.g = g->gguf,
                                      .file = s->name[0],
                                      .label = s->name[0],
                                      .scope = CHECK_WHOLE,
                                      .shards = s->n};
    end_findings(check_rules(&whole, finding_line, out), s->name[0], out);
}

/* ---- the table ---- */

// clang-format off
#define PIECES(n) .size = n##_size, .read = n##_read

/* Members of a row: for a file computed for one tensor, and for a file with a line per tensor. */
#define PART(w)   .what = DERIVED_##w, PIECES(part), .computed = true
#define LINES(w)  .what = DERIVED_##w, PIECES(lines_row), .computed = true

#define SAFETENSORS(f) .as = SAFETENSORS_##f, .size = safetensors_row_size, \
    .image = safetensors_row_image, .read = image_row_read

const struct row files_root[] = {
    {.name = "metadata",      .flags = ROW_DIR},
    {.name = "tensors",       .flags = ROW_DIR},
    {.name = "metadata.json", .flags = ROW_WHOLE, .text = metadata_json},
    {.name = "tensors.json",  .flags = ROW_WHOLE, .text = tensors_json},
    {.name = "info",          .flags = ROW_WHOLE | ROW_STATE, .text = info_text},
    {.name = "model.gguf",    .flags = ROW_WHOLE | ROW_EXTRA, .size = model_size, .image = model_image, .read = image_row_read},
    {.name = "check",         .flags = ROW_WHOLE, .text = findings_text},
    {.name = "tensors.txt",   .flags = ROW_WHOLE, .text = tensors_txt},
    {.name = "model.safetensors", .flags = ROW_WHOLE | ROW_EXTRA | ROW_SAFETENSORS, SAFETENSORS(OWN)},
    {.name = "model.f32.safetensors", .flags = ROW_WHOLE | ROW_HIDDEN | ROW_SAFETENSORS, SAFETENSORS(F32)},
    {.name = "model.f16.safetensors", .flags = ROW_WHOLE | ROW_HIDDEN | ROW_SAFETENSORS, SAFETENSORS(F16)},
    {.name = "model.bf16.safetensors", .flags = ROW_WHOLE | ROW_HIDDEN | ROW_SAFETENSORS, SAFETENSORS(BF16)},
    {.name = "stats.tsv",     .flags = ROW_WHOLE | ROW_HIDDEN, LINES(MOMENTS)},
    {.name = "hashes",        .flags = ROW_WHOLE | ROW_HIDDEN, LINES(SHA256)},
    {.name = "errors",        .flags = ROW_WHOLE | ROW_STATE | ROW_ERRORS},
};

#define VALUES(n) .form = &quant_##n, PIECES(tensor)

const struct row files_tensor[] = {
    [TENSOR_RAW] = {.name = "raw",     PIECES(tensor)},
    [TENSOR_F32] = {.name = "f32",     .flags = ROW_VALUES | ROW_EXTRA, VALUES(f32)},
    [TENSOR_F32_NPY] = {.name = "f32.npy", .flags = ROW_VALUES | ROW_EXTRA, VALUES(f32)},
    [TENSOR_SHAPE] = {.name = "shape",   .text = view_head},
    [TENSOR_TYPE] = {.name = "type",    .text = view_head},
    [TENSOR_OFFSET] = {.name = "offset",  .flags = ROW_MOVES | ROW_EXTRA, .text = offset_text},
    [TENSOR_F16] = {.name = "f16",     .flags = ROW_VALUES | ROW_HIDDEN, VALUES(f16)},
    [TENSOR_F16_NPY] = {.name = "f16.npy", .flags = ROW_VALUES | ROW_HIDDEN, VALUES(f16)},
    [TENSOR_BF16] = {.name = "bf16", .flags = ROW_VALUES | ROW_HIDDEN, VALUES(bf16)},
    {.name = "shard",   .flags = ROW_SPLIT | ROW_EXTRA, .text = shard_text},
    {.name = "stats",   .flags = ROW_VALUES | ROW_HIDDEN, PART(STATS)},
    {.name = "heatmap.png", .flags = ROW_VALUES | ROW_HIDDEN, PART(PICTURE)},
    {.name = "sha256",  .flags = ROW_HIDDEN, PART(SHA256)},
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
    return !(row->flags & ROW_VALUES) || quant_has_values(gguf_type(t), g->gguf->fmt.big);
}

/* Return false if the model cannot have this file. If there is no memory to make it, the file exists,
 * and getting its size fails with -ENOMEM. */
static bool is_possible(struct snapshot *g, const struct row *row)
{
    struct image *im = NULL;
    const int r = row->flags & ROW_SAFETENSORS ? safetensors_image(g, row->as, &im) : 0;
    image_unref(im);
    return r != -EFBIG;
}

bool files_listed(struct snapshot *g, const struct row *row, const struct gguf_tensor *t,
                  enum files_views views)
{
    static const unsigned left_out[] = {
        [FILES_STD] = ROW_HIDDEN, [FILES_RAW] = ROW_HIDDEN | ROW_EXTRA, [FILES_ALL] = 0};
    return files_exists(g, row, t) && !(row->flags & left_out[views]) && is_possible(g, row);
}

int files_named(enum files_where where, const char *name)
{
    for (size_t i = 0; i < files_count(where); i++)
        if (strcmp(files_row(where, i)->name, name) == 0)
            return (int)i;
    return -1;
}

int files_find(struct snapshot *g, enum files_where where, const struct gguf_tensor *t,
               const char *name)
{
    const int i = files_named(where, name);
    const struct row *row = i < 0 ? NULL : files_row(where, (size_t)i);
    return row && files_exists(g, row, t) && is_possible(g, row) ? i : -1;
}
