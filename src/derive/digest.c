/* SPDX-License-Identifier: MIT */
/* SHA-256: see digest.h. */
#include "derive/digest.h"

#include <errno.h>
#include <stdlib.h>

#ifdef GGUFS_LIBCRYPTO
#include <openssl/crypto.h>
#include <openssl/evp.h>

struct digest {
    EVP_MD_CTX *context; /* owned */
    bool failed;
};

const char *digest_library(void)
{
    return OpenSSL_version(OPENSSL_VERSION);
}

struct digest *digest_new(void)
{
    struct digest *d = calloc(1, sizeof(*d));
    if (d && (d->context = EVP_MD_CTX_new()) &&
        EVP_DigestInit_ex(d->context, EVP_sha256(), NULL) == 1)
        return d;
    digest_free(d);
    return NULL;
}

void digest_add(struct digest *d, const void *bytes, size_t n)
{
    d->failed |= EVP_DigestUpdate(d->context, bytes, n) != 1;
}

int digest_end(struct digest *d, uint8_t dst[DIGEST_BYTES])
{
    unsigned len = 0;
    bool ok = EVP_DigestFinal_ex(d->context, dst, &len) == 1 && len == DIGEST_BYTES;
    return ok && !d->failed ? 0 : -EIO;
}

void digest_free(struct digest *d)
{
    if (d)
        EVP_MD_CTX_free(d->context);
    free(d);
}

#else

const char *digest_library(void)
{
    return NULL;
}

struct digest *digest_new(void)
{
    return NULL;
}

void digest_add(struct digest *d, const void *bytes, size_t n)
{
    (void)d;
    (void)bytes;
    (void)n;
}

int digest_end(struct digest *d, uint8_t dst[DIGEST_BYTES])
{
    (void)d;
    (void)dst;
    return -EIO;
}

void digest_free(struct digest *d)
{
    (void)d;
}

#endif

void digest_hex(const uint8_t hash[DIGEST_BYTES], char dst[DIGEST_HEX])
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < DIGEST_BYTES; i++) {
        dst[2 * i] = hex[hash[i] >> 4];
        dst[2 * i + 1] = hex[hash[i] & 15];
    }
}
