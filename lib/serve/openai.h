/* openai - requests and answers of OpenAI's HTTP interface, as JSON
 *
 * Requests are data of strangers: openai_parse checks types and ranges of all that it
 * reads.  A parameter that would change the answer and that is not supported is an
 * error which names it; parameters that would not, and unknown ones, are ignored. */
#ifndef LIB_SERVE_OPENAI_H
#define LIB_SERVE_OPENAI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/json.h"
#include "lib/base/str.h"
#include "lib/serve/said.h"

/* ---- errors ---- */

struct openai_error {
    int status;        /* of HTTP; 0: no error */
    const char *code;  /* a constant such as "model_not_found", or NULL */
    const char *param; /* a constant: the parameter that is wrong, or NULL */
    char text[1024];
};

/* Sets *e and returns -1. */
int openai_fail(struct openai_error *e, int status, const char *param, const char *code,
                const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Appends {"error":{"message","type","param","code"}}, as the clients read it. */
void openai_add_error(struct str *out, const struct openai_error *e);

/* ---- requests ---- */

enum openai_kind {
    OPENAI_COMPLETION,
    OPENAI_CHAT,
    OPENAI_TOKENIZE,   /* vLLM's: one prompt, or messages */
    OPENAI_DETOKENIZE, /* the same: .tokens */
    OPENAI_RESPONSE,   /* a chat in the form of responses.h */
    OPENAI_EMBEDDING,  /* vectors of .prompt, which is called "input" */
    OPENAI_RERANK      /* as Jina's and Cohere's: .query and .document */
};

/* Is it about messages? */
bool openai_is_chat(enum openai_kind kind);

/* One of the prompts of a completion. */
struct openai_prompt {
    const char *text; /* [len], or NULL: */
    size_t len;
    const struct json *ids; /* an array of numbers of [0, 2^31) */
};

/* Parameters that are a number, of which a missing one is the server's. */
enum openai_number {
    OPENAI_TEMPERATURE,
    OPENAI_TOP_K, /* 0: no limit */
    OPENAI_TOP_P,
    OPENAI_MIN_P,
    OPENAI_TYPICAL_P,
    OPENAI_PRESENCE_PENALTY,
    OPENAI_FREQUENCY_PENALTY,
    OPENAI_REPETITION_PENALTY,
    OPENAI_MIN_TOKENS,
    OPENAI_NUMBERS
};

struct openai_bias {
    int32_t id;
    double bias; /* is added to its logit */
};

struct openai_request {
    enum openai_kind kind;
    struct json_doc doc;          /* of which all pointers are borrowed */
    const char *model;            /* NULL: not given */
    struct openai_prompt *prompt; /* [nprompts]: of a completion, or to be tokenized */
    size_t nprompts;
    const struct json *tokens; /* an array of numbers of [0, 2^31), or empty */
    int n;                     /* choices of each prompt, */
    int best_of;               /* of so many, those that are likeliest by token */
    bool stream, include_usage, echo;
    struct {
        bool max_tokens, seed, number[OPENAI_NUMBERS];
    } given;
    uint64_t max_tokens, seed; /* no token: of an echo alone */
    double number[OPENAI_NUMBERS];
    struct openai_bias *bias; /* [nbias] */
    size_t nbias;
    const char **bad_word; /* [nbad_words] texts that are not generated */
    size_t nbad_words;
    bool tools;               /* there are some, and the model may call them, */
    bool one_call;            /* one at a time */
    bool must_call;           /* it does call one of them: */
    const char *called;       /* this one; NULL: any */
    char *grammar;            /* what the answer is: "json", an object of JSON; "regex:"
                               * and an expression; a JSON schema; NULL: any text */
    const char *grammar_from; /* a constant: the parameter that says so */
    int likely; /* how many of the likeliest tokens are told with each; -1: none, and no
                 * log-probability */
    const char **stop; /* [nstop] texts that end an answer */
    size_t nstop;
    int32_t *stop_ids; /* [nstop_ids] tokens that do */
    size_t nstop_ids;
    bool ignore_eos; /* the model's own end does not */
    /* of vectors */
    bool base64;                /* they come as text, */
    uint64_t dimensions;        /* so many numbers of them; 0: all */
    struct openai_prompt query; /* a text, */
    struct openai_prompt
        *document; /* [ndocuments]: and those that are compared to it */
    size_t ndocuments;
    uint64_t top_n;    /* so many of the best are told; 0: all */
    bool leaves_texts; /* without their texts */
};

enum {
    OPENAI_MOST_CHOICES = 128,
    OPENAI_MOST_STOPS = 16,
    OPENAI_MOST_STOP_IDS = 1024,
    OPENAI_MOST_LIKELY = 20,
    OPENAI_MOST_BIASES = 1024,
    OPENAI_MOST_BAD_WORDS = 1024,
    OPENAI_MOST_TEXTS = 2048 /* of a request for vectors */
};

/* Parses the N bytes at BODY.  Call openai_clear also after a failure, which has
 * status 400. */
MUST_CHECK int openai_parse(struct openai_request *r, enum openai_kind kind,
                            const char *body, size_t n, struct openai_error *e);
void openai_clear(struct openai_request *r);

/* ---- answers ---- */

struct openai_head {
    char id[48];
    const char *model;
    int64_t created; /* seconds since 1970 */
    enum openai_kind kind;
};

struct openai_usage {
    size_t prompt, completion, cached; /* tokens */
};

/* A token and its log-probability, NAN if there is none. */
struct openai_token {
    const char *text; /* [len], which may be a part of a character */
    size_t len;
    double logprob;
    bool hidden; /* special, which the answer's text leaves out */
};

/* A choice of an answer, or what is new of it. */
struct openai_choice {
    int index;
    const char *text; /* [len] */
    size_t len;
    const char *finish; /* a constant: why it has ended; or NULL */
    /* [ntokens][1 + nlikely]: each token, and the likeliest in its place, of which one
     * with .text NULL is the first that is not there; or NULL */
    const struct openai_token *token;
    size_t ntokens, nlikely;
    size_t offset;       /* characters of the text before the first of them */
    const char *thought; /* [nthought]: of a chat, apart from its text */
    size_t nthought;
    const struct said_call *call; /* [ncalls]: of tools, */
    size_t ncalls, first_call;    /* which there are so many of before */
};

/* Fills the id with random bytes. */
void openai_head_init(struct openai_head *h, enum openai_kind kind, const char *model);
/* The whole answer. */
void openai_add_answer(struct str *out, const struct openai_head *h,
                       const struct openai_choice *choice, size_t n,
                       const struct openai_usage *usage);
/* The characters of the texts of C's tokens: what .offset grows by. */
size_t openai_characters(const struct openai_choice *c);
/* A part of a streamed answer: C, FIRST in its choice; NULL: no choice, but USAGE.
 * COUNTS: other chunks say that their usage is null. */
void openai_add_chunk(struct str *out, const struct openai_head *h,
                      const struct openai_choice *c, bool first, bool counts,
                      const struct openai_usage *usage);

#endif
