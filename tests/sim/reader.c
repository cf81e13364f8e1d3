/* SPDX-License-Identifier: MIT */
/* The second parser: see reader.h. */
#include "reader.h"

#include <string.h>

enum { STRING = 8, ARRAY = 9 };

struct at {
    const uint8_t *p;
    uint64_t left;
    bool bad;
};

static const uint8_t *take(struct at *a, uint64_t n)
{
    const uint8_t *p = a->p;
    if (n > a->left) {
        a->bad = true;
        a->left = 0;
        return NULL;
    }
    a->p += n;
    a->left -= n;
    return p;
}

static uint64_t number(struct at *a, unsigned n)
{
    const uint8_t *p = take(a, n);
    uint64_t v = 0;
    for (unsigned i = 0; p && i < n; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

static void name(struct at *a, char *dst, size_t room)
{
    uint64_t n = number(a, 8);
    const uint8_t *p = take(a, n);
    if (!p || n >= room)
        a->bad = true;
    else
        memcpy(dst, p, n);
}

static uint64_t width(uint32_t type)
{
    static const uint8_t widths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof(widths) ? widths[type] : 0;
}

static void value(struct at *a, uint32_t type, struct read_key *k)
{
    if (type == ARRAY) {
        uint32_t of = (uint32_t)number(a, 4);
        uint64_t n = number(a, 8);
        const uint8_t *begin = a->p;
        for (uint64_t i = 0; i < n && !a->bad; i++)
            value(a, of, k);
        k->value = begin;
        k->n = (uint64_t)(a->p - begin);
        return;
    }
    k->n = type == STRING ? number(a, 8) : width(type);
    a->bad |= type != STRING && k->n == 0;
    k->value = take(a, k->n);
}

static const char *keys(struct at *a, uint64_t n, struct read_model *m, uint64_t *alignment)
{
    for (uint64_t i = 0; i < n; i++) {
        struct read_key *k = &m->key[i];
        name(a, k->name, sizeof(k->name));
        k->type = (uint32_t)number(a, 4);
        value(a, k->type, k);
        if (a->bad)
            return "a key does not fit";
        for (uint64_t j = 0; j < i; j++)
            if (strcmp(k->name, m->key[j].name) == 0)
                return "a key is there twice";
        if (strcmp(k->name, "general.alignment") == 0)
            *alignment = number(&(struct at){k->value, k->n, false}, 4);
    }
    m->keys = (unsigned)n;
    return NULL;
}

static const char *tensors(struct at *a, uint64_t n, struct read_model *m)
{
    for (uint64_t i = 0; i < n; i++) {
        struct read_tensor *t = &m->tensor[i];
        name(a, t->name, sizeof(t->name));
        t->n_dims = (uint32_t)number(a, 4);
        if (t->n_dims > 4)
            return "a tensor has too many dimensions";
        for (uint32_t d = 0; d < t->n_dims; d++)
            t->dim[d] = number(a, 8);
        t->type = (uint32_t)number(a, 4);
        t->off = number(a, 8);
        if (a->bad)
            return "a tensor does not fit";
        for (uint64_t j = 0; j < i; j++)
            if (strcmp(t->name, m->tensor[j].name) == 0)
                return "a tensor is there twice";
    }
    m->tensors = (unsigned)n;
    return NULL;
}

const char *read_model(const uint8_t *bytes, size_t n, struct read_model *ret)
{
    struct at a = {bytes, n, false};
    uint64_t alignment = 32;
    memset(ret, 0, sizeof(*ret));
    if (number(&a, 4) != 0x46554747 || number(&a, 4) != 3)
        return "it is no GGUF file";
    uint64_t n_tensors = number(&a, 8), n_keys = number(&a, 8);
    if (a.bad || n_tensors > 64 || n_keys > 64)
        return "the counts are wrong";
    const char *wrong = keys(&a, n_keys, ret, &alignment);
    if (!wrong)
        wrong = tensors(&a, n_tensors, ret);
    if (wrong)
        return wrong;
    uint64_t data = ((uint64_t)(a.p - bytes) + alignment - 1) / alignment * alignment;
    for (unsigned i = 0; i < ret->tensors; i++) {
        ret->tensor[i].off += data;
        if (ret->tensor[i].off > n)
            return "a tensor lies behind the end";
    }
    return NULL;
}
