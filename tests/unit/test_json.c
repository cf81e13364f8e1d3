/* SPDX-License-Identifier: MIT */
/* text/json: another parser (cJSON) reads the output of json_value(). */
#include "cu_main.h"

#include <cJSON.h>

#include "base/err.h"
#include "text/json.h"

static const struct gguf_format v3 = {.version = 3, .len_width = 8};

/* Render the value whose bytes are in `payload`, parse the JSON, and free the payload. Never
 * returns NULL. */
static cJSON *read_back(uint32_t type, struct buf *payload)
{
    struct buf out = BUF_INIT;
    struct gguf_value v = gguf_value_at(&v3, type, payload->data);
    json_value(&out, &v);
    CU_ASSERT_EQUAL_FATAL(buf_error(&out), 0);
    for (size_t i = 0; i < out.len; i++) /* the text has no control or hidden characters */
        CU_ASSERT_TRUE_FATAL(out.data[i] >= 0x20 && utf8_hidden(out.data + i, out.len - i) == 0);
    const char *end = NULL;
    cJSON *json = cJSON_ParseWithLengthOpts((const char *)out.data, out.len, &end, 0);
    CU_ASSERT_PTR_NOT_NULL_FATAL(json);
    CU_ASSERT_PTR_EQUAL(end, (const char *)out.data + out.len);
    buf_free(&out);
    buf_free(payload);
    return json;
}

static void put_string(struct buf *b, const char *s, size_t n)
{
    buf_uint(b, n, 8, false);
    buf_add(b, s, n);
}

/* One string holds every character of Unicode's first plane, except NUL and surrogates, and some
 * beyond it. */
static void test_every_character(void)
{
    struct buf text = BUF_INIT, payload = BUF_INIT;
    for (uint32_t c = 1; c < 0x11000; c++) {
        if (c >= 0xd800 && c <= 0xdfff)
            continue;
        uint8_t s[4] = {(uint8_t)(0xf0 | c >> 18), (uint8_t)(0x80 | (c >> 12 & 0x3f)),
                        (uint8_t)(0x80 | (c >> 6 & 0x3f)), (uint8_t)(0x80 | (c & 0x3f))};
        size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
        s[4 - n] = (uint8_t)(n == 1 ? c : lead[n] | c >> 6 * (n - 1));
        buf_add(&text, s + 4 - n, n);
    }
    put_string(&payload, (const char *)text.data, text.len);
    buf_char(&text, '\0');
    cJSON *json = read_back(GGUF_STRING, &payload);
    CU_ASSERT_STRING_EQUAL(cJSON_GetStringValue(json), (const char *)text.data);
    cJSON_Delete(json);
    buf_free(&text);
}

static CU_TestInfo tests[] = {
    {"every character survives a round trip", test_every_character},
    CU_TEST_INFO_NULL,
};

CU_MAIN("json", tests)
