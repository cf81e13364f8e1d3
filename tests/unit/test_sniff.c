/* SPDX-License-Identifier: MIT */
/* gguf/source: URLs, and files that are not GGUF, are recognised and named in messages. */
#include "cu_main.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "gguf/gguf.h"
#include "gguf/source.h"

/* With the string's own NUL, the bytes are not text. */
#define BYTES(s) s, sizeof(s)
#define TEXT(s) s, sizeof(s) - 1

static const struct {
    const char *bytes;
    size_t n;
    const char *what; /* beginning of the name; NULL: not recognised */
    const char *todo; /* part of the advice */
} kinds[] = {
    {TEXT(""), "an empty file", "download it again"},
    {TEXT("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 123\n"),
     "a git-lfs pointer", "git lfs pull"},
    {TEXT("version https://hawser.github.com/spec/v1\n"), "a git-lfs pointer", "git lfs pull"},
    {TEXT("<!DOCTYPE html><html>"), "a web page (HTML)", "/resolve/"},
    {TEXT("\r\n <HTML lang=en>"), "a web page (HTML)", "direct link"},
    {TEXT("\xef\xbb\xbf<!-- x --><html>"), "a web page (HTML)", "direct link"},
    {TEXT("<?xml version=\"1.0\"?><Error>"), "a web page (HTML)", "direct link"},
    {TEXT("{\"error\": \"Repository not found\"}"), "a JSON file", "the reason"},
    {TEXT(" [\n  {\"a\": 1}]"), "a JSON file", "the reason"},
    {BYTES("\x40\0\0\0\0\0\0\0{\"__metadata__\""), "a safetensors file", "convert_hf_to_gguf.py"},
    {BYTES("PK\3\4\0\0archive/data.pkl"), "a zip archive", "PyTorch"},
    {BYTES("\x80\2\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19."), "a Python pickle",
     "convert_hf_to_gguf.py"},
    {BYTES("\x80\4\x95\0\0"), "a Python pickle", "convert_hf_to_gguf.py"},
    {TEXT("\x80\5K\1."), "a Python pickle", "convert_hf_to_gguf.py"},
    {BYTES("\x1f\x8b\x08\0"), "a gzip archive", "gzip -d"},
    {BYTES("\x28\xb5\x2f\xfd\4"), "a compressed archive", "unpack"},
    {BYTES("lmgg\0\175\0"), "a model in a format older than GGUF", "convert_llama_ggml_to_gguf.py"},
    {BYTES("fmgg\1\0\0"), "a model in a format older than GGUF", "download the model as GGUF"},
    {BYTES("tjgg\3\0\0"), "a model in a format older than GGUF", "download the model as GGUF"},
    {BYTES("ggml\0\0\175"), "a model in a format older than GGUF", "download the model as GGUF"},
    {BYTES("ggmf\0\0\0\1"), "a model in a format older than GGUF", "download the model as GGUF"},
    {BYTES("ggjt\0\0\0\3"), "a model in a format older than GGUF", "download the model as GGUF"},
    {BYTES("\0\0\0\0\0\0\0"), "a file that begins with zeros", "incomplete download"},
    {TEXT("Entry not found"), "a short text file", "the reason"},
    {TEXT("Invalid username or password.\n"), "a short text file", "download it again"},
    {BYTES("FUGG\0\0\0\3"), NULL, NULL},
    {BYTES("GGUX\3\0\0"), NULL, NULL},
    {BYTES("\1\2\3\4\5\6\7\10\11{"), NULL, NULL}, /* safetensors headers are never that long */
    {TEXT("GGUF"), NULL, NULL},
};

static void test_kinds(void)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        /* The copy has exactly these bytes, so that a sanitizer detects reads beyond them. */
        uint8_t *bytes = malloc(kinds[i].n + !kinds[i].n);
        CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
        memcpy(bytes, kinds[i].bytes, kinds[i].n);
        const struct sniffed *s = sniff_bytes(bytes, kinds[i].n, kinds[i].n);
        bool ok = !s == !kinds[i].what &&
                  (!s || (strncmp(s->what, kinds[i].what, strlen(kinds[i].what)) == 0 &&
                          strstr(s->todo, kinds[i].todo)));
        if (!ok)
            (void)printf("\n  row %zu: %s", i, s ? s->what : "(none)");
        CU_ASSERT_TRUE(ok);
        for (size_t n = 0; n < kinds[i].n; n++) /* any number of bytes may be given */
            (void)sniff_bytes(bytes, n, kinds[i].n);
        free(bytes);
    }
}

/* If the parser recognises the file, its error for the first field says what the file is. */
static void test_parser(void)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct source src = source_mem(kinds[i].bytes, kinds[i].n);
        struct gguf *g = NULL;
        struct err e = {0};
        CU_ASSERT_EQUAL(gguf_parse(&src, 0, &g, &e), -EBADMSG);
        CU_ASSERT_EQUAL(strncmp(e.msg, "magic at byte 0: ", 17), 0);
        CU_ASSERT_TRUE(!kinds[i].what || strstr(e.msg, kinds[i].what));
        CU_ASSERT_TRUE(!kinds[i].todo || strstr(e.msg, kinds[i].todo));
    }
}

static void test_long(void)
{
    static uint8_t bytes[2 * SNIFF_BYTES];
    const struct sniffed *s = sniff_bytes(bytes, sizeof(bytes), 1 << 30);
    CU_ASSERT_TRUE(s && strstr(s->what, "zeros"));
    memset(bytes, 'a', sizeof(bytes));
    /* Only short text files are recognised. */
    CU_ASSERT_PTR_NULL(sniff_bytes(bytes, sizeof(bytes), sizeof(bytes)));
}

static void test_paths(void)
{
    static const struct {
        const char *path, *todo;
    } rows[] = {
        {"http://host/model.gguf", "download the model first"},
        {"HTTPS://huggingface.co/org/name", "download the model first"},
        {"hf://org/name/model.gguf", "hf download"},
        {"file:///models/x.gguf", "give the path after file://"},
        {"s3://bucket/x.gguf", "mount its server"},
        {"/models/x.gguf", NULL},
        {"C://models", NULL},
        {"a b://x", NULL},
        {"http:/x", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct sniffed *s = sniff_path(rows[i].path);
        CU_ASSERT_EQUAL(!s, !rows[i].todo);
        CU_ASSERT_TRUE(!s || strstr(s->todo, rows[i].todo));
    }
    struct err e = {0};
    CU_ASSERT_EQUAL(sniff_no_file("/x", -ENOENT, &e), -ENOENT);
    CU_ASSERT_STRING_EQUAL(e.msg, "No such file or directory");
    CU_ASSERT_EQUAL(sniff_no_file("http://x", -EACCES, &e), -EACCES);
    CU_ASSERT_STRING_EQUAL(e.msg, "Permission denied");
}

static CU_TestInfo tests[] = {
    {"each kind of file is recognised, with advice", test_kinds},
    {"the parser's message names the kind of file", test_parser},
    {"only the first bytes count", test_long},
    {"URLs are recognised, with advice", test_paths},
    CU_TEST_INFO_NULL,
};

CU_MAIN("sniff", tests)
