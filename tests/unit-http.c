/* unit-http - the web server with a thread that answers, under clients of all kinds
 *
 * Also for ThreadSanitizer: clients ask, read streams, and leave in the middle, while
 * the thread that stands for the model makes pieces, and the server is ended. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "lib/serve/address.h"
#include "lib/serve/answer.h"
#include "lib/serve/client.h"
#include "tests/tap.h"

enum { CLIENTS = 6, EACH = 50, PIECES = 20, WAITING = 64 };

static struct queue *queue;
static atomic_bool ends;
static atomic_int answered, left, refused;

/* ---- the side of the server ---- */

static void free_request(void *request)
{
    openai_clear(request);
    free(request);
}

static bool decode(const void *arg, int32_t id, struct str *out)
{
    (void)arg;
    str_addc(out, (char)('a' + id % 26));
    return true;
}

static void admit(void *arg, const struct http_request *r, struct http_reply *reply)
{
    (void)arg;
    if (strcmp(r->path, "/v1/completions") != 0)
        reply->status = 404;
}

static void answer(void *arg, const struct http_request *r, struct http_exchange *x,
                   struct http_reply *reply)
{
    struct openai_request *asked = xcalloc(1, sizeof(*asked));
    struct answer_form form = {
        .request = asked, .model = "m", .decode = decode, .nchoices = 1
    };
    struct openai_error e = { 0 };
    struct job *j = job_new();

    (void)arg;
    j->request = asked;
    j->free_request = free_request;
    if (openai_parse(asked, OPENAI_COMPLETION, r->body, r->nbody, &e) < 0) {
        reply->status = e.status;
        job_drop(j);
        return;
    }
    j->whole = !asked->stream;
    answer_prepare(x, j);
    if (queue_push(queue, j) != QUEUE_TAKEN) {
        reply->status = 429;
        job_drop(j);
        return;
    }
    answer_later(x, j, &form);
}

static void refuse(void *arg, int status, const char *why, struct http_reply *reply)
{
    (void)arg;
    (void)why;
    reply->status = status;
}

/* ---- the side of the model ---- */

/* One step: a piece for each job. */
static void step(struct job **job, size_t *made, size_t *n)
{
    for (size_t i = 0; i < *n;) {
        struct job_told told = { (int32_t)made[i], -1 };
        struct job_piece p = {
            .told = &told,
            .ntold = 1,
            .ntokens = 1,
            .text = (char *)(uintptr_t) "abcdefghijklmnopqrstuvwxyz" + made[i] % 26,
            .len = 1,
            .end = made[i] + 1 == PIECES ? JOB_LENGTH : JOB_GOES_ON
        };
        const bool gone = job_is_cancelled(job[i]);

        if (!gone)
            job_add(queue, job[i], &p);
        if (!gone && ++made[i] < PIECES) {
            i++;
            continue;
        }
        job_end(queue, job[i], 0, NULL);
        job_drop(job[i]);
        job[i] = job[--*n];
        made[i] = made[*n];
    }
    queue_flush(queue);
}

static void *run_model(void *arg)
{
    struct job *job[WAITING];
    size_t made[WAITING], n = 0;

    (void)arg;
    while (!atomic_load(&ends) || n || queue_length(queue)) {
        while (n < 8 && (job[n] = queue_take(queue)))
            made[n++] = 0;
        if (!n)
            queue_wait(queue, 10);
        step(job, made, &n);
    }
    return NULL;
}

/* ---- clients ---- */

struct reading {
    struct str all;
    size_t most; /* bytes after which it leaves */
};

static int take(void *arg, const char *bytes, size_t n)
{
    struct reading *r = arg;

    str_addn(&r->all, bytes, n);
    return r->all.len > r->most ? -1 : 0;
}

static void ask(const struct client_url *url, int i)
{
    static const char *const bodies[] = {
        "{\"prompt\":\"x\"}", "{\"prompt\":\"x\",\"stream\":true,\"logprobs\":0}",
        "{\"prompt\":\"x\",\"stream\":true}", "{\"prompt\":"
    };
    const int kind = i % 5;
    const struct client_request request = { .method = "POST",
                                            .path =
                                                kind == 4 ? "/x" : "/v1/completions",
                                            .body = bodies[kind % 4] };
    struct reading r = { .most = kind == 2 ? 400 : SIZE_MAX };
    struct err err = { 0 };
    int status = 0, ret = client_run(url, &request, &status, take, &r, &err);

    if (kind >= 3)
        atomic_fetch_add(&refused, status == (kind == 3 ? 400 : 404));
    else if (kind == 2)
        atomic_fetch_add(&left, r.all.len > r.most);
    else if (ret == 0 && status == 200)
        atomic_fetch_add(
            &answered, strstr(str_text(&r.all),
                              kind ? "data: [DONE]" : "abcdefghijklmnopqrst") != NULL);
    str_clear(&r.all);
}

static void *run_client(void *arg)
{
    for (int i = 0; i < EACH; i++)
        ask(arg, i);
    return NULL;
}

int main(void)
{
    const struct http_handler handler = { .admit = admit,
                                          .answer = answer,
                                          .refuse = refuse };
    const struct http_limits limits = {
        .connections = 64, .body = 4096, .head_s = 30, .body_s = 30, .idle_s = 30
    };
    struct address at;
    struct client_url url;
    struct http *http;
    pthread_t model, client[CLIENTS];
    struct err err = { 0 };

    if (http_check(&err) < 0) {
        tap_ok(err.kind == ERR_NO, "without libmicrohttpd there is no server");
        return tap_done();
    }
    queue = queue_new(WAITING);
    if (!tap_ok(address_bind(&at, "127.0.0.1:0", &err) == 0 &&
                    address_listen(&at, &err) == 0 &&
                    http_open(&http, at.fd, &limits, &handler, &err) == 0 &&
                    client_url_parse(&url, str_text(&at.url), &err) == 0,
                "a server listens%s", err.text))
        return tap_done();
    at.fd = -1;
    pthread_create(&model, NULL, run_model, NULL);
    for (int i = 0; i < CLIENTS; i++)
        pthread_create(&client[i], NULL, run_client, &url);
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(client[i], NULL);
    tap_ok(atomic_load(&answered) == CLIENTS * EACH * 2 / 5,
           "clients have their answers, whole and in streams");
    tap_ok(atomic_load(&left) == CLIENTS * EACH / 5, "others leave in the middle");
    tap_ok(atomic_load(&refused) == CLIENTS * EACH * 2 / 5, "or are refused");
    queue_close(queue);
    atomic_store(&ends, true);
    pthread_join(model, NULL);
    http_close(http, 5);
    tap_ok(queue_length(queue) == 0, "at the end nothing waits");
    queue_free(queue);
    client_url_clear(&url);
    address_close(&at);
    return tap_done();
}
