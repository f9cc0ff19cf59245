/* hello - how a rank proves to another that both belong to one job */
#include "lib/comm/hello.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static const char magic[8] = { 's', 'h', 'a', 'r', 'd', 't', 'c', '2' };

_Static_assert(sizeof(struct hello) == 36 + HELLO_JOB &&
                   sizeof(struct hello_challenge) == 12 + HELLO_NONCE &&
                   sizeof(struct hello_answer) == 16 + SHA256_BYTES,
               "messages have no gaps");

/* The code of a proof (VERDICT 0) or of an answer: neither can stand for the other. */
static void make_code(unsigned char code[SHA256_BYTES], const struct hello_job *job,
                      const struct hello *h, const struct hello_challenge *c,
                      uint32_t verdict)
{
    struct hmac m;

    verdict = htonl(verdict);
    hmac_init(&m, job->secret, job->secret ? strlen(job->secret) : 0);
    hmac_add(&m, &verdict, sizeof(verdict));
    hmac_add(&m, h, sizeof(*h));
    hmac_add(&m, c, sizeof(*c));
    hmac_end(&m, code);
}

/* ---- who connects ---- */

void hello_make(struct hello *h, const struct hello_job *job, int rank, int nranks,
                int port, const unsigned char nonce[HELLO_NONCE])
{
    *h = (struct hello){ .rank = htonl((uint32_t)rank),
                         .nranks = htonl((uint32_t)nranks),
                         .port = htonl((uint32_t)port) };
    memcpy(h->magic, magic, sizeof(magic));
    memcpy(h->nonce, nonce, HELLO_NONCE);
    snprintf(h->job, sizeof(h->job), "%s", job->name);
}

bool hello_is_foreign(const struct hello_challenge *c)
{
    return !memcmp(c->magic, magic, sizeof(magic)) && c->foreign;
}

bool hello_prove(struct hello_proof *p, const struct hello_job *job,
                 const struct hello *h, const struct hello_challenge *c)
{
    if (memcmp(c->magic, magic, sizeof(magic)) != 0 || c->foreign)
        return false;
    make_code(p->code, job, h, c, 0);
    return true;
}

enum hello_verdict hello_read(const struct hello_answer *a, const struct hello_job *job,
                              const struct hello *h, const struct hello_challenge *c)
{
    uint32_t verdict = ntohl(a->verdict);
    unsigned char code[SHA256_BYTES];

    if (memcmp(a->magic, magic, sizeof(magic)) != 0 || verdict < HELLO_ADMITTED ||
        verdict > HELLO_TAKEN)
        return 0;
    make_code(code, job, h, c, HELLO_ADMITTED);
    if (verdict == HELLO_ADMITTED && !hmac_equal(a->code, code))
        return 0;
    return (enum hello_verdict)verdict;
}

/* ---- who listens ---- */

void hello_expect(struct hello_guest *g, const unsigned char nonce[HELLO_NONCE])
{
    *g = (struct hello_guest){ .have = 0 };
    memcpy(g->challenge.magic, magic, sizeof(magic));
    memcpy(g->challenge.nonce, nonce, HELLO_NONCE);
}

size_t hello_room(struct hello_guest *g, void **to)
{
    if (g->have < sizeof(g->hello)) {
        *to = (char *)&g->hello + g->have;
        return sizeof(g->hello) - g->have;
    }
    *to = (char *)&g->proof + (g->have - sizeof(g->hello));
    return sizeof(g->hello) + sizeof(g->proof) - g->have;
}

enum hello_step hello_took(struct hello_guest *g, const struct hello_job *job, size_t n)
{
    unsigned char code[SHA256_BYTES];

    g->have += n;
    if (memcmp(g->hello.magic, magic,
               g->have < sizeof(magic) ? g->have : sizeof(magic)) != 0)
        return HELLO_STRANGER;
    if (g->have < sizeof(g->hello))
        return HELLO_MORE;
    if (g->have == sizeof(g->hello)) {
        bool ours =
            memchr(g->hello.job, 0, HELLO_JOB) && !strcmp(g->hello.job, job->name);

        g->challenge.foreign = htonl(!ours);
        return ours ? HELLO_ASKED : HELLO_FOREIGN;
    }
    if (g->have < sizeof(g->hello) + sizeof(g->proof))
        return HELLO_MORE;
    make_code(code, job, &g->hello, &g->challenge, 0);
    return hmac_equal(g->proof.code, code) ? HELLO_PROVEN : HELLO_FALSE;
}

void hello_reply(struct hello_answer *a, const struct hello_job *job,
                 const struct hello_guest *g, enum hello_verdict verdict, int nranks)
{
    *a = (struct hello_answer){ .verdict = htonl(verdict),
                                .nranks = htonl((uint32_t)nranks) };
    memcpy(a->magic, magic, sizeof(magic));
    if (verdict == HELLO_ADMITTED)
        make_code(a->code, job, &g->hello, &g->challenge, verdict);
}
