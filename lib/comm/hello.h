/* hello - how a rank proves to another that both belong to one job
 *
 *     who connects                      who listens
 *     hello: its rank, a nonce    ->
 *                                 <-    challenge: a nonce
 *     proof: a code               ->
 *                                 <-    answer: the verdict, a code
 *
 * A code is an HMAC-SHA-256 of the hello and the challenge with the job's secret as the
 * key, so neither side learns the secret, and what was once said proves nothing later.
 * A job without a secret has an empty key; its codes prove nothing.  What follows on
 * the connection is neither encrypted nor authenticated.
 *
 * Nothing here touches a socket.  Numbers are in network order. */
#ifndef LIB_COMM_HELLO_H
#define LIB_COMM_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/sha256.h"

enum { HELLO_JOB = 160 /* bytes of a job's name, with its zero */, HELLO_NONCE = 16 };

struct hello_job {
    const char *name;   /* less than HELLO_JOB bytes */
    const char *secret; /* NULL: none */
};

struct hello {
    char magic[8];
    uint32_t rank, nranks;
    uint32_t port; /* on which the rank listens itself */
    unsigned char nonce[HELLO_NONCE];
    char job[HELLO_JOB];
};

struct hello_challenge {
    char magic[8];
    uint32_t foreign; /* not 0: the listener is of another job, and closes */
    unsigned char nonce[HELLO_NONCE];
};

struct hello_proof {
    unsigned char code[SHA256_BYTES];
};

enum hello_verdict {
    HELLO_ADMITTED = 1,
    HELLO_UNPROVEN,   /* the code is that of another secret */
    HELLO_OTHER_SIZE, /* of the job */
    HELLO_NO_RANK,    /* of this number is waited for */
    HELLO_TAKEN,      /* another process is this rank */
};

struct hello_answer {
    char magic[8];
    uint32_t verdict, nranks;
    unsigned char code[SHA256_BYTES]; /* zeros unless admitted */
};

/* ---- who connects ---- */

bool hello_is_foreign(const struct hello_challenge *c);
void hello_make(struct hello *h, const struct hello_job *job, int rank, int nranks,
                int port, const unsigned char nonce[HELLO_NONCE]);
/* False: C is not from a rank of this version and this job. */
bool hello_prove(struct hello_proof *p, const struct hello_job *job,
                 const struct hello *h, const struct hello_challenge *c);
/* The verdict of A; 0: it is not from a rank of this version, or an admission that does
 * not prove that it comes from the job. */
enum hello_verdict hello_read(const struct hello_answer *a, const struct hello_job *job,
                              const struct hello *h, const struct hello_challenge *c);

/* ---- who listens ---- */

/* What has come on a connection; all zeros at first, but for the challenge. */
struct hello_guest {
    struct hello_challenge challenge;
    struct hello hello;
    struct hello_proof proof;
    size_t have; /* bytes of the hello and the proof */
};

enum hello_step {
    HELLO_MORE,     /* bytes are to come */
    HELLO_STRANGER, /* these are no rank's: close the connection */
    HELLO_FOREIGN,  /* a rank of another job: send the challenge, and close */
    HELLO_ASKED,    /* the hello is whole: send the challenge */
    HELLO_FALSE,    /* the proof is false: answer, and close */
    HELLO_PROVEN,   /* it is of the job; whether its rank can be is still to be seen */
};

void hello_expect(struct hello_guest *g, const unsigned char nonce[HELLO_NONCE]);
/* Where the next bytes go; returns their greatest number, 0 when all is there. */
size_t hello_room(struct hello_guest *g, void **to);
/* N of them have come. */
enum hello_step hello_took(struct hello_guest *g, const struct hello_job *job,
                           size_t n);
/* An answer to what G has said. */
void hello_reply(struct hello_answer *a, const struct hello_job *job,
                 const struct hello_guest *g, enum hello_verdict verdict, int nranks);

#endif
