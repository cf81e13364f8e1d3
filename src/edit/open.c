/* SPDX-License-Identifier: MIT */
/* Opens the files of a model: see open.h. */
#include "edit/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/lock.h"
#include "base/sys.h"
#include "model/snapshot.h"

/* How long to wait while another process edits the model in place. */
#define PATIENCE_MS 10000
/* How many times to parse a file that changes meanwhile, as one that is being downloaded does. */
#define PARSE_TRIES 10

int model_find(const char *path, struct model_file *m, struct err *e)
{
    struct stat st;
    *m = (struct model_file){.path = strdup(path), .dir = -1, .file = {.fd = -1}};
    if (!m->path)
        return err_set(e, -ENOMEM, "no memory");
    m->real = realpath(path, NULL);
    if (!m->real)
        return sniff_no_file(path, -errno, e);
    if (stat(m->real, &st) == 0 && S_ISDIR(st.st_mode))
        return sniff_folder(e);
    char *slash = strrchr(m->real, '/');
    m->name = slash + 1;
    *slash = '\0'; /* temporarily shortens the path to the directory's */
    const char *dir = slash == m->real ? "/" : m->real;
    m->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (m->dir < 0 && errno == EACCES) /* not listable, but O_PATH is enough for one file */
        m->dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r = m->dir < 0 ? -errno : 0;
    *slash = '/';
    return err_sys(e, r, "cannot open its directory");
}

/* ---- pipes ---- */

/* So many bytes are read at first, then as many again as are there. */
#define STREAM_STEP ((size_t)64 << 10)
/* The end of a faulty header is unknown. So many bytes are enough to report its faults. */
#define STREAM_ENOUGH ((size_t)64 << 20)

bool model_is_stream(const char *path)
{
    struct stat st;
    return strcmp(path, "-") == 0 || (stat(path, &st) == 0 && S_ISFIFO(st.st_mode));
}

/* True if no more bytes are needed than are in fd. Its size becomes the model's, if they tell. */
static bool is_enough(int fd, uint64_t len)
{
    struct source src;
    struct gguf *g;
    uint64_t end;
    if (source_fd(fd, &src, NULL) < 0 || gguf_parse(&src, GGUF_PARTIAL | GGUF_CUT, &g, NULL) < 0)
        return len >= STREAM_ENOUGH;
    const bool whole = !(g->anomalies & GGUF_ANOMALY_CUT);
    if (whole && align_u64(g->data_end, g->alignment, &end))
        (void)!ftruncate(fd, (off_t)end);
    gguf_free(g);
    return whole;
}

static int read_beginning(int from, int to)
{
    uint8_t piece[STREAM_STEP];
    uint64_t len = 0, look = sizeof(piece);
    for (bool enough = false; !enough;) {
        const ssize_t n = read(from, piece, sizeof(piece));
        if (n < 0 && errno == EINTR)
            continue;
        int r = n < 0 ? -errno : sys_write_all(&sys_libc, to, piece, (size_t)n, len);
        if (r < 0)
            return r;
        len += (uint64_t)n;
        if (n > 0 && len < look)
            continue;
        enough = is_enough(to, len) || n == 0;
        look *= 2;
    }
    return 0;
}

int model_read(const char *path, struct model_file *m, struct err *e)
{
    const int to = memfd_create("model", MFD_CLOEXEC);
    *m = (struct model_file){.path = strdup(path),
                             .name = "",
                             .dir = -1,
                             .stream = true,
                             .file = {.sys = &sys_libc, .dir = -1, .fd = to}};
    if (!m->path)
        return err_set(e, -ENOMEM, "no memory");
    int fd = strcmp(path, "-") == 0 ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                                    : open(path, O_RDONLY | O_CLOEXEC);
    int r = fd < 0 || to < 0 ? -errno : read_beginning(fd, to);
    if (fd >= 0)
        (void)close(fd);
    return err_sys(e, r, "cannot read");
}

/* ---- parsing ---- */

/* Parses once. *torn: the model was edited in place meanwhile. */
static int parse_once(struct model_file *m, unsigned flags, const struct timespec *until,
                      bool *torn, struct gguf **ret, struct err *e)
{
    struct edit_id before, after;
    m->src = (struct source){0};
    *torn = false;
    int r = edit_at_rest(&m->file, until, &before, &m->planted, e);
    if (r == 0)
        r = source_fd(m->file.fd, &m->src, e);
    if (r < 0)
        return r;
    r = gguf_parse(&m->src, flags, ret, e);
    int rest = edit_at_rest(&m->file, until, &after, &m->planted, e);
    *torn = rest == 0 && !edit_id_equal(&before, &after);
    return rest < 0 ? rest : r;
}

int model_parse(struct model_file *m, unsigned flags, struct gguf **ret, struct err *e)
{
    const struct timespec until = when_after(PATIENCE_MS);
    struct err why = {0};
    bool torn = true;
    int r = 0;
    *ret = NULL;
    if (m->file.fd < 0)
        r = edit_file_open(&m->file, &sys_libc, m->dir, m->name, false, e);
    if (r < 0)
        return r;
    for (int i = 0; i < PARSE_TRIES && torn; i++) {
        gguf_free(*ret);
        *ret = NULL;
        why = (struct err){0};
        r = parse_once(m, flags, &until, &torn, ret, &why);
    }
    if (r < 0) {
        gguf_free(*ret);
        *ret = NULL;
        if (sniff_part(m->name))
            (void)err_set(&why, r,
                          "is one part of a file that was cut into several: join them first, in "
                          "order (cat PART... > NAME.gguf)");
        if (e)
            *e = why;
    }
    return r;
}

void model_free(struct model_file *m)
{
    if (m->file.fd >= 0)
        edit_file_close(&m->file);
    if (m->dir >= 0)
        (void)close(m->dir);
    free(m->real);
    free(m->path);
    *m = (struct model_file){.dir = -1, .file = {.fd = -1}};
}

static int open_shard(struct shards *s, size_t i, unsigned flags, const struct model_opener *o,
                      struct err *e)
{
    struct model_file m;
    char *path = shards_path(s, i);
    s->name[i] = path ? strdup(path_name(path)) : NULL;
    if (!s->name[i]) {
        free(path);
        return err_set(e, -ENOMEM, "no memory");
    }
    int r = o && o->find ? o->find(o->find_arg, path, &m, e) : model_find(path, &m, e);
    if (r == 0)
        r = model_parse(&m, flags, &s->g[i], e);
    if (r == 0)
        r = mapped_open(m.file.fd, m.src.size, &s->file[i], e);
    if (r == 0 && o)
        o->keep(o->arg, i, &m);
    else
        model_free(&m);
    free(path);
    return r;
}

/* Checks each shard's count of all tensors. On failure *i is the shard with the wrong count. */
static int check_totals(const struct shards *s, size_t *i, struct err *e)
{
    uint64_t total = 0;
    for (size_t k = 0; k < s->n; k++)
        total += s->g[k]->n_tensors;
    for (*i = 0; *i < s->n; ++*i)
        if (merge_check_total(s->g[*i], total, e) < 0)
            return -EBADMSG;
    return 0;
}

/*
 * Allocates the lists, and enters the first file. The others are added as they are found, because
 * the count in a file's name may be wrong.
 */
static int begin_lists(struct shards *s, struct gguf *g)
{
    char *first = shards_path(s, 0);
    s->no = calloc(s->all, sizeof(*s->no));
    s->name = calloc(s->all, sizeof(char *));
    s->g = calloc(s->all, sizeof(struct gguf *));
    s->file = calloc(s->all, sizeof(struct mapped *));
    s->n = 1;
    if (first && s->name)
        s->name[0] = strdup(path_name(first));
    free(first);
    if (!s->no || !s->name || !s->name[0] || !s->g || !s->file)
        return -ENOMEM;
    s->g[0] = REF(g);
    return 0;
}

/* Adds file number `no`. Leaves out a missing file if that is accepted. */
static int add_shard(struct shards *s, size_t no, unsigned flags, const struct model_opener *o,
                     struct err *e)
{
    const size_t i = s->n++;
    s->no[i] = no;
    int r = open_shard(s, i, flags, o, e);
    if (r == 0)
        return merge_check(s->g[0], s->g[i], no, s->all, e);
    if (r != -ENOENT)
        return r;
    if (!(flags & GGUF_PARTIAL))
        return err_set(e, r, "%s (-o partial mounts what is there)", strerror(-r));
    free(s->name[i]);
    s->name[i] = NULL;
    s->n = i;
    if (e)
        *e = (struct err){0};
    return 0;
}

int model_open_shards(struct shards *s, struct gguf *g, unsigned parse_flags,
                      const struct model_opener *o, struct err *e)
{
    char shown[SHOW_MAX];
    if (begin_lists(s, g) < 0)
        return err_set(e, -ENOMEM, "no memory");
    int r = merge_check(g, g, 0, s->all, e);
    for (size_t no = 1; r == 0 && no < s->all; no++)
        r = add_shard(s, no, parse_flags, o, e);
    size_t i = s->n - 1;
    if (r == 0 && s->n == s->all)
        r = check_totals(s, &i, e);
    if (r < 0)
        return err_prefix(e, r, "shard %s",
                          s->name[i] ? show(shown, s->name[i], strlen(s->name[i])) : "");
    return 0;
}

/* Opens the files after the first one, and merges them. */
static int join_files(struct model_whole *m, unsigned flags, struct err *e)
{
    struct gguf *merged;
    int r = model_open_shards(&m->files, m->g, flags & GGUF_PARTIAL, NULL, e);
    if (r == 0)
        r = merge_shards((const struct gguf *const *)m->files.g, m->files.n, &merged, e);
    if (r < 0)
        return r;
    gguf_free(m->g);
    m->g = merged;
    return 0;
}

int model_whole_open(const char *path, unsigned flags, struct model_whole *m, struct err *e)
{
    char shown[SHOW_MAX];
    *m = (struct model_whole){.first = {.dir = -1, .file = {.fd = -1}}};
    char *first = shards_find(&m->files, path) < 0 ? NULL : shards_path(&m->files, 0);
    if (!first)
        return err_set(e, -ENOMEM, "no memory");
    const bool stream = flags & GGUF_CUT && m->files.n == 0 && model_is_stream(first);
    int r = stream ? model_read(first, &m->first, e) : model_find(first, &m->first, e);
    if (r == 0)
        r = model_parse(&m->first, flags, &m->g, e);
    if (r < 0 && m->files.n)
        (void)err_prefix(e, r, "shard %s", show(shown, path_name(first), strlen(path_name(first))));
    free(first);
    if (r < 0 || stream || m->g->anomalies & GGUF_ANOMALY_CUT)
        return r;
    return m->files.n ? join_files(m, flags, e) : merge_check_single(m->g, e);
}

void model_whole_free(struct model_whole *m)
{
    gguf_free(m->g);
    model_free(&m->first);
    shards_free(&m->files);
}

int model_recover(const char *path, struct edit_recovered *ret, struct err *e)
{
    char shown[SHOW_MAX];
    struct model_file m;
    struct shards s;
    *ret = (struct edit_recovered){0};
    char *first = shards_find(&s, path) < 0 ? NULL : shards_path(&s, 0);
    if (!first)
        return err_set(e, -ENOMEM, "no memory");
    int r = model_find(first, &m, e);
    if (r == 0)
        r = edit_file_open(&m.file, &sys_libc, m.dir, m.name, true, e);
    if (r == 0)
        r = edit_recover(&m.file, ret, e);
    if (r < 0 && s.n)
        (void)err_prefix(e, r, "shard %s", show(shown, path_name(first), strlen(path_name(first))));
    model_free(&m);
    shards_free(&s);
    free(first);
    return r;
}
