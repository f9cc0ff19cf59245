/* unit-serve - a server's parts without a socket: the queue, keys, metrics, JSON */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/base64.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/serve/apikeys.h"
#include "lib/serve/metrics.h"
#include "lib/serve/openai.h"
#include "lib/serve/queue.h"
#include "lib/serve/said.h"
#include "lib/serve/sse.h"
#include "tests/tap.h"

/* ---- the queue ---- */

static atomic_int woken, released, finished;

static void wake(void *arg)
{
    (void)arg;
    atomic_fetch_add(&woken, 1);
}

static void release(void *arg)
{
    (void)arg;
    atomic_fetch_add(&released, 1);
}

static struct job *make_job(void)
{
    struct job *j = job_new();

    j->wake = wake;
    j->release_wake = release;
    return j;
}

static void add_text(struct queue *q, struct job *j, const char *text)
{
    struct job_piece p = { .ntokens = 1,
                           .text = (char *)(uintptr_t)text,
                           .len = strlen(text) };

    job_add(q, j, &p);
}

static void check_limits(void)
{
    struct queue *q = queue_new(2);
    struct job *a = make_job(), *b = make_job(), *c = make_job();
    struct job_taken t;

    tap_ok(queue_push(q, a) == QUEUE_TAKEN && queue_push(q, b) == QUEUE_TAKEN,
           "a queue takes as many jobs as it may");
    tap_ok(queue_push(q, c) == QUEUE_FULL, "and no more");
    job_cancel(a);
    tap_ok(queue_push(q, c) == QUEUE_TAKEN && queue_length(q) == 2,
           "a cancelled one makes room");
    tap_ok(queue_take(q) == b, "the others are taken in order");
    add_text(q, b, "one");
    add_text(q, b, "two");
    tap_ok(atomic_load(&woken) == 0, "nobody is woken within a step");
    queue_flush(q);
    tap_ok(atomic_load(&woken) == 1, "and once after it");
    job_take(b, &t);
    tap_ok(t.n == 2 && t.piece[1].len == 3 && !memcmp(t.piece[1].text, "two", 3) &&
               !t.over,
           "pieces are taken in order");
    job_taken_clear(&t);
    b->most = 10;
    add_text(q, b, "a text that nobody reads");
    tap_ok(job_is_cancelled(b), "a client that reads too slowly is given up");
    job_end(q, b, 7, NULL);
    queue_flush(q);
    job_take(b, &t);
    tap_ok(t.over && t.cached == 7 && t.err.kind == ERR_NONE, "the end is told");
    job_taken_clear(&t);
    queue_close(q);
    tap_ok(queue_push(q, a) == QUEUE_CLOSED, "a closed queue takes nothing");
    job_drop(b);
    job_drop(a);
    job_drop(b);
    job_drop(c);
    queue_free(q);
    tap_ok(atomic_load(&released) == 3, "all are released");
}

enum { CLIENTS = 4, EACH = 200, PIECES = 8 };

/* A client waits for its job as the web server does. */
struct client {
    struct queue *q;
    pthread_mutex_t lock;
    pthread_cond_t news;
    bool stirred;
    int got, ended;
};

static void stir(void *arg)
{
    struct client *c = arg;

    pthread_mutex_lock(&c->lock);
    c->stirred = true;
    pthread_cond_signal(&c->news);
    pthread_mutex_unlock(&c->lock);
}

static void take_all(struct client *c, struct job *j)
{
    struct job_taken t;

    for (bool over = false; !over; job_taken_clear(&t)) {
        pthread_mutex_lock(&c->lock);
        while (!c->stirred)
            pthread_cond_wait(&c->news, &c->lock);
        c->stirred = false;
        pthread_mutex_unlock(&c->lock);
        job_take(j, &t);
        c->got += (int)t.n;
        c->ended += over = t.over;
    }
}

static void *run_client(void *arg)
{
    struct client *c = arg;

    for (int i = 0; i < EACH; i++) {
        struct job *j = job_new();

        j->wake = stir;
        j->wake_arg = c;
        while (queue_push(c->q, j) == QUEUE_FULL)
            sched_yield();
        if (i % 10 == 9)
            job_cancel(j);
        else
            take_all(c, j);
        job_drop(j);
    }
    atomic_fetch_add(&finished, 1);
    return NULL;
}

/* The model's thread; each job has PIECES pieces, one a step.  A cancelled job may
 * leave the queue without being seen. */
static int serve_clients(struct queue *q)
{
    struct job *running[CLIENTS * EACH];
    int n = 0, left[CLIENTS * EACH], done = 0;

    while (n || atomic_load(&finished) < CLIENTS) {
        struct job *j;

        while ((j = queue_take(q))) {
            left[n] = PIECES;
            running[n++] = j;
        }
        for (int i = 0; i < n; i++) {
            bool over = --left[i] == 0, gone = job_is_cancelled(running[i]);

            if (!gone)
                add_text(q, running[i], "piece");
            if (over || gone)
                job_end(q, running[i], 0, NULL);
            if (!over && !gone)
                continue;
            done += !gone;
            job_drop(running[i]);
            running[i] = running[--n];
            left[i] = left[n];
            i--;
        }
        queue_flush(q);
        if (!n)
            queue_wait(q, 10);
    }
    return done;
}

static void check_threads(void)
{
    struct queue *q = queue_new(2);
    struct client c[CLIENTS];
    pthread_t thread[CLIENTS];
    int got = 0, ended = 0, done;

    for (int i = 0; i < CLIENTS; i++) {
        c[i] = (struct client){ .q = q };
        pthread_mutex_init(&c[i].lock, NULL);
        pthread_cond_init(&c[i].news, NULL);
        pthread_create(&thread[i], NULL, run_client, &c[i]);
    }
    done = serve_clients(q);
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(thread[i], NULL);
        got += c[i].got;
        ended += c[i].ended;
        pthread_mutex_destroy(&c[i].lock);
        pthread_cond_destroy(&c[i].news);
    }
    tap_ok(ended == CLIENTS * EACH * 9 / 10 && got == ended * PIECES && done >= ended,
           "clients of several threads get all pieces of their jobs");
    queue_free(q);
}

/* ---- keys ---- */

static void check_keys(void)
{
    struct apikeys *k = NULL;
    struct err err = { 0 };
    struct str basic = { 0 };

    tap_ok(apikeys_open(&k, NULL, "", &err) < 0 && err.kind == ERR_INPUT,
           "an empty list has no key");
    tap_ok(apikeys_open(&k, NULL, "one\xc3\xa4", &err) < 0, "a key is ASCII");
    tap_ok(apikeys_open(&k, NULL, "one, two", &err) == 0, "a list has keys");
    tap_ok(apikeys_allow(k, "Bearer one") && apikeys_allow(k, "bearer  two"),
           "each of them is allowed");
    tap_ok(!apikeys_allow(k, NULL) && !apikeys_allow(k, "Bearer") &&
               !apikeys_allow(k, "Bearer ") && !apikeys_allow(k, "Bearer on") &&
               !apikeys_allow(k, "Bearer one ") && !apikeys_allow(k, "one"),
           "nothing else is");
    str_add(&basic, "Basic ");
    base64_encode("me:two", 6, &basic);
    tap_ok(apikeys_allow(k, str_text(&basic)), "a password is one");
    tap_ok(!apikeys_allow(k, "Basic bWU=") && !apikeys_allow(k, "Basic ?"),
           "a password is needed, and base64");
    str_clear(&basic);
    apikeys_close(k);
}

static void check_base64(void)
{
    static const char *const text[] = { "", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==" };
    bool same = true;

    for (size_t n = 0; n < 5; n++) { /* RFC 4648, section 10 */
        struct str out = { 0 }, back = { 0 };

        base64_encode("foob", n, &out);
        same &= !strcmp(str_text(&out), text[n]);
        same &= base64_decode(text[n], &back) && back.len == n &&
                !memcmp(str_text(&back), "foob", n);
        str_clear(&out);
        str_clear(&back);
    }
    tap_ok(same, "base64 is that of RFC 4648");
}

/* ---- metrics ---- */

static void check_metrics(void)
{
    struct metrics *m = metrics_new();
    struct str out = { 0 };

    metrics_add(m, METRIC_GENERATION_TOKENS, 2);
    metrics_add(m, METRIC_GENERATION_TOKENS, 3);
    metrics_set(m, METRIC_RUNNING, 4);
    metrics_observe(m, METRIC_STEP_TOKENS, 1);
    metrics_observe(m, METRIC_STEP_TOKENS, 3);
    metrics_observe(m, METRIC_STEP_TOKENS, 1e9);
    metrics_print(m, "a \"b\"\\", &out);
    tap_ok(strstr(str_text(&out),
                  "# TYPE vllm:generation_tokens_total counter\n"
                  "vllm:generation_tokens_total{model_name=\"a \\\"b\\\"\\\\\"} 5\n"),
           "a counter is a sum, and a label is quoted");
    tap_ok(strstr(str_text(&out),
                  "vllm:num_requests_running{model_name=\"a \\\"b\\\"\\\\\"} "
                  "4\n"),
           "a gauge is the last number");
    tap_ok(strstr(str_text(&out), "le=\"1\"} 1\n") &&
               strstr(str_text(&out), "le=\"2\"} 1\n") &&
               strstr(str_text(&out), "le=\"4\"} 2\n") &&
               strstr(str_text(&out), "iteration_tokens_total_bucket{model_name=\"a "
                                      "\\\"b\\\"\\\\\",le=\"+Inf\"} 3\n") &&
               strstr(str_text(&out), "iteration_tokens_total_count{model_name=\"a "
                                      "\\\"b\\\"\\\\\"} 3\n"),
           "a histogram's buckets have all that is not above them");
    str_clear(&out);
    metrics_free(m);
}

/* ---- JSON ---- */

static void check_answers(void)
{
    struct openai_head h;
    struct openai_choice c = {
        .index = 1, .text = "a\"\n", .len = 3, .finish = "stop"
    };
    const struct openai_usage u = { 1, 2, 1 };
    struct str out = { 0 };
    struct json_doc doc;
    struct err err = { 0 };

    openai_head_init(&h, OPENAI_CHAT, "m");
    openai_add_answer(&out, &h, &c, 1, &u);
    tap_ok(json_parse(&doc, "answer", str_text(&out), out.len, &err) == 0 &&
               !strcmp(json_string(json_get(
                           json_get(json_get(doc.root, "choices")->first, "message"),
                           "content")),
                       "a\"\n"),
           "an answer is JSON that has its text");
    json_clear(&doc);
    str_reset(&out);
    sse_add(&out, "{}");
    sse_end(&out);
    tap_ok(!strcmp(str_text(&out), "data: {}\n\ndata: [DONE]\n\n"),
           "events are lines of data");
    str_clear(&out);
}

/* ---- what is said, apart ---- */

/* "THOUGHT|ANSWER|NAME ARGUMENTS|..." of TEXT, which comes in pieces of STEP bytes. */
static void take_apart(struct str *out, const struct said_form *form, const char *text,
                       size_t step)
{
    const size_t all = strlen(text);
    struct said s;
    struct str thought = { 0 }, answer = { 0 }, calls = { 0 };

    said_init(&s, form);
    for (size_t at = 0; at <= all; at += step) {
        const size_t n = all - at < step ? all - at : step;

        said_read(&s, text + at, n, at + step > all);
        str_addn(&thought, str_text(&s.thought), s.thought.len);
        str_addn(&answer, str_text(&s.answer), s.answer.len);
        for (size_t i = 0; i < s.ncalls; i++)
            str_addf(&calls, "|%s %s", s.call[i].name, s.call[i].arguments);
    }
    str_reset(out);
    str_addf(out, "%s|%s%s", str_text(&thought), str_text(&answer), str_text(&calls));
    str_clear(&thought);
    str_clear(&answer);
    str_clear(&calls);
    said_clear(&s);
}

static void check_said(void)
{
    static const struct said_form hermes = { .calls = SAID_HERMES },
                                  llama = { .calls = SAID_LLAMA },
                                  mistral = { .calls = SAID_MISTRAL },
                                  thinks = { .thoughts = true, .calls = SAID_HERMES },
                                  thinking = { .thoughts = true, .in_thoughts = true },
                                  one = { .calls = SAID_HERMES, .one = true },
                                  none = { 0 };
    static const struct {
        const struct said_form *form;
        const char *text, *want;
    } cases[] = {
        { &none, "a <tool_call>{} <think>b</think>",
          "|a <tool_call>{} <think>b</think>" },
        { &thinks, " <think>\nhm <b></think>\n\nyes", "hm <b>|yes" },
        { &thinks, "<thin is no <think>", "|<thin is no <think>" },
        { &thinks, "<think>hm</think><tool_call>{\"name\":\"f\"}</tool_call>",
          "hm||f {}" },
        { &thinks, "<think>without end </thi", "without end </thi|" },
        { &thinking, "\nhm</think> yes", "hm|yes" },
        { &hermes,
          "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"</a>\", \"y\": "
          "[1]}}\n</tool_call>",
          "||f {\"x\":\"</a>\",\"y\":[1]}" },
        { &hermes,
          "I call <tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n"
          "<tool_call>{\"name\":\"g\",\"arguments\":{\"n\":1}}</tool_call> done",
          "|I call done|f {}|g {\"n\":1}" },
        { &one,
          "<tool_call>{\"name\":\"f\"}</tool_call><tool_call>{\"name\":\"g\"}</"
          "tool_call>",
          "||f {}" },
        { &hermes, "<tool_call>{\"name\":\"f\",\"arguments\":{}}", "||f {}" },
        { &hermes, "<tool_call>{\"name\":</tool_call> x",
          "|<tool_call>{\"name\":</tool_call> x" },
        { &hermes, "<tool_call>{\"name\":1}</tool_call>",
          "|<tool_call>{\"name\":1}</tool_call>" },
        { &hermes, "a < b <tool_cal", "|a < b <tool_cal" },
        { &llama, "{\"name\": \"f\", \"parameters\": {\"x\": \"}\\\"\"}}",
          "||f {\"x\":\"}\\\"\"}" },
        { &llama,
          "<|python_tag|>{\"name\":\"f\",\"parameters\":{}}; "
          "{\"name\":\"g\",\"parameters\":{}}",
          "||f {}|g {}" },
        { &llama, " {\"names\": 3} is JSON", "| {\"names\": 3} is JSON" },
        { &llama, "no {\"name\":\"f\",\"parameters\":{}}",
          "|no {\"name\":\"f\",\"parameters\":{}}" },
        { &mistral,
          "[TOOL_CALLS] "
          "[{\"name\":\"f\",\"arguments\":{\"x\":1}},{\"name\":\"g\",\"arguments\":{}}"
          "]",
          "||f {\"x\":1}|g {}" },
        { &mistral, "x[TOOL_CALLS]f[ARGS]{\"x\":{}}[TOOL_CALLS]g{\"y\":2}",
          "|x|f {\"x\":{}}|g {\"y\":2}" },
        { &mistral, "[TOOL_CALLS][{\"name\":\"f\"},3]",
          "|[TOOL_CALLS][{\"name\":\"f\"},3]" },
        { &mistral, "[TOOL_CALL] x", "|[TOOL_CALL] x" },
    };
    struct str out = { 0 };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        bool good = true;

        for (size_t step = 1; step < 100; step++) {
            take_apart(&out, cases[i].form, cases[i].text, step);
            if (strcmp(str_text(&out), cases[i].want) != 0 && good) {
                printf("# %zu bytes at a time: %s\n", step, str_text(&out));
                good = false;
            }
        }
        tap_ok(good, "thoughts, answer and calls however they come: case %zu", i);
    }
    str_clear(&out);
}

int main(void)
{
    check_said();
    check_limits();
    check_threads();
    check_keys();
    check_base64();
    check_metrics();
    check_answers();
    return tap_done();
}
