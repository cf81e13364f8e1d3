/* SPDX-License-Identifier: MIT */
/* Builds GGUF images in memory: see build_gguf.h. */
#include "build_gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "quant/quant.h"
#include "quant/f16.h"

static void count(const struct gguf_format *fmt, struct buf *to, uint64_t n)
{
    buf_uint(to, n, fmt->len_width, fmt->big);
}

static void string(const struct gguf_format *fmt, struct buf *to, const void *text, size_t n)
{
    count(fmt, to, n + fmt->nul);
    buf_add(to, text, n);
    buf_zero(to, fmt->nul);
}

static void array(const struct gguf_format *fmt, struct buf *to, uint32_t elem, uint64_t n)
{
    if (fmt->draft)
        count(fmt, to, n);
    buf_uint(to, elem, 4, fmt->big);
    if (!fmt->draft)
        count(fmt, to, n);
}

/* In the first draft of the format, a value's length precedes its type, but is not known until the
 * value is complete. */
static void close_value(struct build *b)
{
    if (b->value_len_at == 0)
        return;
    put_u32(b->keys.data + b->value_len_at, (uint32_t)(b->keys.len - b->value_len_at - 8), false);
    b->value_len_at = 0;
}

static void begin(struct build *b, const void *key, size_t key_len, uint32_t type)
{
    close_value(b);
    b->n_kv++;
    string(&b->fmt, &b->keys, key, key_len);
    if (b->fmt.draft) {
        b->value_len_at = b->keys.len;
        buf_zero(&b->keys, 4);
    }
    buf_uint(&b->keys, type, 4, b->fmt.big);
}

struct build build_of(uint8_t version, bool big)
{
    return (struct build){
        .fmt = {.version = version, .big = big, .len_width = version == 1 ? 4 : 8},
        .alignment = 32,
    };
}

struct build build_draft(void)
{
    struct build b = build_of(1, false);
    b.fmt.draft = true;
    b.alignment = 64;
    return b;
}

void build_raw(struct build *b, const void *key, size_t key_len, uint32_t type, const void *value,
               size_t n)
{
    begin(b, key, key_len, type);
    buf_add(&b->keys, value, n);
}

void build_num(struct build *b, const char *key, enum gguf_value_type type, uint64_t bits)
{
    begin(b, key, strlen(key), type);
    build_item_num(b, type, bits);
}

void build_u32(struct build *b, const char *key, uint32_t v)
{
    build_num(b, key, GGUF_U32, v);
}

void build_f32(struct build *b, const char *key, float v)
{
    build_num(b, key, GGUF_F32, f32_bits(v));
}

void build_str(struct build *b, const char *key, const char *text)
{
    build_str_n(b, key, text, strlen(text));
}

void build_str_n(struct build *b, const char *key, const void *text, size_t n)
{
    begin(b, key, strlen(key), GGUF_STRING);
    string(&b->fmt, &b->keys, text, n);
}

void build_array(struct build *b, const char *key, enum gguf_value_type elem, uint64_t n)
{
    begin(b, key, strlen(key), GGUF_ARRAY);
    build_item_array(b, elem, n);
}

void build_item_num(struct build *b, enum gguf_value_type type, uint64_t bits)
{
    if (!gguf_types[type].width)
        abort();
    buf_uint(&b->keys, bits, gguf_types[type].width, b->fmt.big);
}

void build_item_str(struct build *b, const char *text)
{
    string(&b->fmt, &b->keys, text, strlen(text));
}

void build_item_array(struct build *b, enum gguf_value_type elem, uint64_t n)
{
    array(&b->fmt, &b->keys, elem, n);
}

uint32_t build_type(const char **text)
{
    const size_t n = strcspn(*text, "[=");
    for (uint32_t i = 0; i < GGUF_VALUE_TYPES; i++)
        if (strlen(gguf_types[i].name) == n && memcmp(*text, gguf_types[i].name, n) == 0) {
            *text += n;
            return i;
        }
    abort();
}

const char *build_value(struct buf *to, const struct gguf_format *fmt, uint32_t type,
                        const char *text, const char *ends)
{
    CLEANUP(buf_free) struct buf part = BUF_INIT; /* a string, or the elements of an array */
    if (type == GGUF_ARRAY) {
        const uint32_t elem = build_type(&text);
        uint64_t n = 0;
        for (bool more = *++text != ']'; more; n++) {
            text = build_value(&part, fmt, elem, text, ",]");
            more = *text++ == ',';
        }
        array(fmt, to, elem, n);
        buf_add(to, part.data, part.len);
        return text + (n == 0);
    }
    if (type != GGUF_STRING) {
        char *end;
        buf_uint(to, strtoull(text, &end, 0), gguf_types[type].width, fmt->big);
        return end;
    }
    for (; *text && !strchr(ends, *text); text++)
        buf_char(&part, (char)(*text == '^' ? '\0' : *text));
    string(fmt, to, part.data, part.len);
    return text;
}

static void fill(struct buf *to, size_t upto, uint8_t byte)
{
    size_t n = to->len < upto ? upto - to->len : 0;
    uint8_t *at = buf_extend(to, n);
    if (at && n)
        memset(at, byte, n);
}

static void pad(struct buf *to, uint64_t base, uint64_t align, uint8_t byte)
{
    uint64_t over = (base + to->len) % align;
    fill(to, to->len + (size_t)(over ? align - over : 0), byte);
}

static void info(struct build *b, const char *name, uint32_t type_id, const uint64_t *dims,
                 uint32_t n_dims, uint64_t off)
{
    uint64_t n_elem = 1;
    if (b->n_tensors == BUILD_MAX_TENSORS)
        abort();
    string(&b->fmt, &b->infos, name, strlen(name));
    buf_uint(&b->infos, n_dims, 4, b->fmt.big);
    for (uint32_t i = 0; i < n_dims; i++) {
        count(&b->fmt, &b->infos, dims[i]);
        n_elem *= dims[i];
    }
    if (b->fmt.draft)
        buf_uint(&b->infos, n_elem, 4, false);
    buf_uint(&b->infos, type_id, 4, b->fmt.big);
    b->word[b->n_tensors++] = b->infos.len;
    buf_uint(&b->infos, off, 8, b->fmt.big);
}

/* Fill tensor i's data with nonzero bytes that depend on the tensor and the position. */
static void make_data(uint8_t *at, size_t n, uint64_t i)
{
    for (size_t k = 0; k < n; k++)
        at[k] = (uint8_t)(1 + (k * 7 + i * 31 + k / 251) % 255);
}

void build_tensor_at(struct build *b, const char *name, uint32_t type_id, const uint64_t *dims,
                     uint32_t n_dims, uint64_t off, const void *data, size_t n)
{
    info(b, name, type_id, dims, n_dims, off);
    fill(&b->data, (size_t)off + n, b->pad_byte);
    if (buf_error(&b->data))
        abort();
    if (data && n)
        memcpy(b->data.data + off, data, n);
    else if (n)
        make_data(b->data.data + off, n, b->n_tensors);
}

void build_tensor(struct build *b, const char *name, uint32_t type_id, const uint64_t *dims,
                  uint32_t n_dims, const void *data, size_t n)
{
    pad(&b->data, 0, b->alignment, b->pad_byte);
    build_tensor_at(b, name, type_id, dims, n_dims, b->data.len, data, n);
}

static uint32_t type_id_of(const char *name)
{
    for (uint32_t id = 0; quant_find(id); id++)
        if (quant_find(id)->name && strcmp(quant_find(id)->name, name) == 0)
            return id;
    return (uint32_t)strtoul(name, NULL, 10);
}

static void described_tensor(struct build *b, const char *text)
{
    char name[128], type[16], shape[128];
    uint64_t dims[8], n_elem = 1;
    unsigned long long n, off;
    uint32_t n_dims = 0;
    const int fields = sscanf(text, ">%127s %15s %127[^ |] %llu %llu", name, type, shape, &n, &off);
    if (fields < 3)
        abort();
    for (char *p = shape; *p && *p != '-'; p += *p == 'x')
        n_elem *= dims[n_dims++] = strtoull(p, &p, 10);
    const struct quant_type *t = quant_find(type_id_of(type));
    if (fields == 3 && t && t->block_len)
        n = n_elem / t->block_len * t->block_bytes;
    else if (fields == 3)
        abort();
    if (fields == 5)
        build_tensor_at(b, name, type_id_of(type), dims, n_dims, off, NULL, (size_t)n);
    else
        build_tensor(b, name, type_id_of(type), dims, n_dims, NULL, (size_t)n);
}

void build_text(struct build *b, const char *text)
{
    for (const char *end; *text; text = *end ? end + 1 : end) {
        end = strchrnul(text, '|');
        if (*text == '>') {
            described_tensor(b, text);
            continue;
        }
        const size_t n = strcspn(text, ":=");
        const char *value = text + n;
        const uint32_t type = *value++ == ':' ? build_type(&value) : GGUF_STRING;
        char key[128];
        (void)snprintf(key, sizeof(key), "%.*s", (int)n, text);
        for (char *p = key; (p = strchr(p, '^'));)
            *p = '\0';
        begin(b, key, n, type);
        (void)build_value(&b->keys, &b->fmt, type, value + (text[n] == ':'), "|");
    }
}

/* In the first draft of the format, offsets are relative to the beginning of the file. */
static void make_absolute(struct build *b, uint64_t base)
{
    for (uint64_t i = 0; i < b->n_tensors; i++) {
        uint8_t *word = b->infos.data + b->word[i];
        put_u64(word, get_u64(word, false) + base, false);
    }
}

static void finish(struct build *b, struct buf *out)
{
    close_value(b);
    buf_str(out, "GGUF");
    buf_uint(out, b->fmt.version, 4, b->fmt.big);
    count(&b->fmt, out, b->n_tensors);
    count(&b->fmt, out, b->n_kv);
    buf_add(out, b->keys.data, b->keys.len);
    if (b->fmt.draft && b->n_tensors)
        pad(out, 0, b->alignment, 0);
    if (b->fmt.draft) {
        uint64_t base;
        if (!align_u64(out->len + b->infos.len, b->alignment, &base))
            abort();
        make_absolute(b, base);
    }
    buf_add(out, b->infos.data, b->infos.len);
    if (b->n_tensors)
        pad(out, 0, b->alignment, b->pad_byte);
    if (!b->no_tail)
        pad(&b->data, 0, b->alignment, b->pad_byte);
    buf_add(out, b->data.data, b->data.len);
}

uint8_t *build_finish(struct build *b, size_t *size)
{
    struct buf out = BUF_INIT;
    finish(b, &out);
    if (buf_error(&b->keys) || buf_error(&b->infos) || buf_error(&b->data) || buf_error(&out))
        abort();
    buf_free(&b->keys);
    buf_free(&b->infos);
    buf_free(&b->data);
    *size = out.len;
    return buf_steal(&out);
}

/* ---- parsed ---- */

static struct gguf *parse_image(const void *bytes, size_t n, unsigned flags)
{
    struct source s = source_mem(bytes, n);
    struct gguf *g = NULL;
    struct err e = {0};
    if (gguf_parse(&s, flags, &g, &e) < 0) {
        (void)puts(e.msg);
        abort();
    }
    return g;
}

struct parsed parse_build(struct build *b, unsigned flags)
{
    struct parsed p = {0};
    p.image = build_finish(b, &p.size);
    p.g = parse_image(p.image, p.size, flags);
    if (p.g->file_size != p.size || memcmp(p.g->head, p.image, (size_t)p.g->head_len) != 0)
        abort();
    return p;
}

struct gguf *gguf_in(const void *bytes, size_t n)
{
    return parse_image(bytes, n, 0);
}

struct gguf *gguf_of(struct build *b)
{
    struct parsed p = parse_build(b, 0);
    free(p.image);
    return p.g;
}

void parsed_free(struct parsed *p)
{
    gguf_free(p->g);
    free(p->image);
    *p = (struct parsed){0};
}

void gguf_drop(struct gguf **g)
{
    gguf_free(*g);
}
