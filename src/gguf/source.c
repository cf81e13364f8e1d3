/* SPDX-License-Identifier: MIT */
/* Sources of bytes: see source.h. */
#include "gguf/source.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/sys.h"

static int read_mem(const struct source *s, uint64_t off, void *dst, size_t n)
{
    memcpy(dst, (const uint8_t *)s->mem + off, n);
    return 0;
}

struct source source_mem(const void *bytes, size_t n)
{
    return (struct source){.size = n, .read = read_mem, .mem = bytes, .fd = -1};
}

static int read_fd(const struct source *s, uint64_t off, void *dst, size_t n)
{
    return sys_read_all(&sys_libc, s->fd, dst, n, off);
}

int source_fd(int fd, struct source *ret, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_set(e, -errno, "cannot stat: %s", strerror(errno));
    if (S_ISDIR(st.st_mode))
        return sniff_folder(e);
    if (!S_ISREG(st.st_mode))
        return err_set(e, -EINVAL, "is not a regular file");
    *ret = (struct source){.size = (uint64_t)st.st_size, .read = read_fd, .fd = fd};
    return 0;
}

/* ---- files given by mistake ---- */

/* The first bytes of a file. */
struct head {
    const uint8_t *at;
    size_t n;
    uint64_t size;
};

static bool starts(struct head h, const char *word)
{
    size_t n = strlen(word);
    return h.n >= n && memcmp(h.at, word, n) == 0;
}

/* Skip a byte order mark and blanks, which may precede text. */
static struct head skip_head(struct head h)
{
    size_t skip = starts(h, "\xef\xbb\xbf") ? 3 : 0;
    while (skip < h.n && strchr(" \t\r\n", h.at[skip]) && h.at[skip])
        skip++;
    return (struct head){h.at + skip, h.n - skip, h.size - skip};
}

static bool is_empty(struct head h)
{
    return h.size == 0;
}

/* Also matches XML, in which object stores report errors. */
static bool is_html(struct head h)
{
    struct head t = skip_head(h);
    return t.n >= 2 && t.at[0] == '<' && (isalpha(t.at[1]) || t.at[1] == '!' || t.at[1] == '?');
}

/* A safetensors file begins with the length of its header in 8 bytes. The header, a JSON object,
 * follows. The limit on its length is part of the format. */
static bool is_safetensors(struct head h)
{
    const uint64_t most = 100000000;
    return h.n >= 9 && get_u64(h.at, false) >= 2 && get_u64(h.at, false) <= most && h.at[8] == '{';
}

static bool is_json(struct head h)
{
    struct head t = skip_head(h);
    if (t.n == 0 || (t.at[0] != '{' && t.at[0] != '['))
        return false;
    t = skip_head((struct head){t.at + 1, t.n - 1, t.size - 1});
    return t.n == 0 || (t.at[0] && strchr("\"{}[]", t.at[0]));
}

/* Protocols 2 to 5. */
static bool is_pickle(struct head h)
{
    return h.n >= 2 && h.at[0] == 0x80 && h.at[1] >= 2 && h.at[1] <= 5;
}

static bool is_zeros(struct head h)
{
    return h.n > 0 && is_zero(h.at, h.n);
}

/* For example, a server's reply "Entry not found", saved in place of the model. */
static bool looks_like_text(struct head h)
{
    for (size_t i = 0; i < h.n; i++)
        if (!isprint(h.at[i]) && !isspace(h.at[i]))
            return false;
    return h.n > 0 && h.n == h.size;
}

#define AGAIN "download it again"

// clang-format off
static const struct {
    bool (*is)(struct head h); /* NULL: the file must begin with one of the words */
    const char *words[8];
    struct sniffed kind;
} kinds[] = {
    {is_empty, {NULL}, {"an empty file", "the download failed or has not begun; " AGAIN}},
    {NULL, {"version https://git-lfs.github.com/", "version https://hawser.github.com/"}, {"a git-lfs pointer", "\"git lfs pull\" in its directory downloads the model"}},
    {is_html, {NULL}, {"a web page (HTML)", "the server sent a page in place of the model; " AGAIN ", using its direct link (.../resolve/..., not .../blob/...)"}},
    {is_safetensors, {NULL}, {"a safetensors file", "convert it with llama.cpp's convert_hf_to_gguf.py, or download the model as GGUF"}},
    {is_json, {NULL}, {"a JSON file", "if a server sent it in place of the model, it contains the reason; " AGAIN}},
    {NULL, {"PK\3\4", "PK\5\6"}, {"a zip archive", "unpack it; if it is a PyTorch model, convert it with llama.cpp's convert_hf_to_gguf.py"}},
    {is_pickle, {NULL}, {"a Python pickle (PyTorch)", "convert the model with llama.cpp's convert_hf_to_gguf.py"}},
    {NULL, {"\x1f\x8b"}, {"a gzip archive", "unpack it with \"gzip -d\" or \"tar -xzf\""}},
    {NULL, {"\xfd" "7zXZ", "\x28\xb5\x2f\xfd", "BZh", "7z\xbc\xaf"}, {"a compressed archive", "unpack it"}},
    /* The magic is a number, so its letters are reversed in a little-endian file. */
    {NULL, {"lmgg", "fmgg", "tjgg", "algg", "ggml", "ggmf", "ggjt", "ggla"}, {"a model in a format older than GGUF (GGML)", "convert it with an older llama.cpp's convert_llama_ggml_to_gguf.py, or download the model as GGUF"}},
    {is_zeros, {NULL}, {"a file that begins with zeros", "it is an incomplete download; wait for it to finish, or " AGAIN}},
    {looks_like_text, {NULL}, {"a short text file", "if a server sent it in place of the model, it contains the reason; " AGAIN}},
};

// clang-format on

static bool begins_with(struct head h, const char *const words[8])
{
    for (size_t i = 0; i < 8 && words[i]; i++)
        if (starts(h, words[i]))
            return true;
    return false;
}

const struct sniffed *sniff_bytes(const uint8_t *bytes, size_t n, uint64_t size)
{
    struct head h = {bytes, n < SNIFF_BYTES ? n : SNIFF_BYTES, size};
    if (starts(h, "GGUF"))
        return NULL;
    for (size_t i = 0; i < COUNT(kinds); i++)
        if (kinds[i].is ? kinds[i].is(h) : begins_with(h, kinds[i].words))
            return &kinds[i].kind;
    return NULL;
}

bool sniff_part(const char *name)
{
    static const char gguf[] = ".gguf";
    const char *at = strcasestr(name, gguf);
    const char *end = at ? at + strlen(gguf) : "";
    const size_t word = strspn(end, ".-_");
    if (!word)
        return false;
    end += word;
    if (strncasecmp(end, "part", 4) == 0 || strncasecmp(end, "split", 5) == 0) {
        end += end[0] == 'p' || end[0] == 'P' ? 4 : 5;
        end += strspn(end, ".-_");
        return isalnum((unsigned char)end[0]);
    }
    return *end && strlen(end) <= 4 && strspn(end, "0123456789") == strlen(end);
}

int sniff_no_file(const char *path, int code, struct err *e)
{
    const char *rest = path + strspn(path, "abcdefghijklmnopqrstuvwxyz");
    if (code != -ENOENT || rest == path || strncmp(rest, "://", 3) != 0)
        return err_set(e, code, "%s", strerror(-code));
    return err_set(e, code, "is a URL, not a file: %s",
                   strncmp(path, "file:", 5) == 0
                       ? "give the path after file://"
                       : "download the model first (hf download), or mount its server and name "
                         "the file there");
}

int sniff_folder(struct err *e)
{
    return err_set(
        e, -EISDIR,
        "is a directory, not a GGUF file: name a model in it (ggufs --info DIRECTORY lists them)");
}
