/* load - measures a server of OpenAI's interface with many clients
 *
 * Each client sends a request, reads its stream to the end, and sends the next (a
 * closed loop). */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/cmd.h"
#include "cmd/tp-run/commands.h"
#include "lib/base/clock.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/sort.h"
#include "lib/serve/client.h"

enum { EACH = 4, MOST_CLIENTS = 4096 };

struct times {
    double *v; /* [n], seconds */
    size_t n, cap;
};

struct load {
    struct client_url url;
    const char *clients, *model, *prompt;
    char *found; /* the model that the server has */
    int requests, max_tokens;
    double price; /* of an hour */
    bool json;
    /* of one load: */
    pthread_mutex_t lock;
    size_t next, total, failed;
    uint64_t tokens, prompt_tokens;
    struct times first, between;
    struct err err; /* of a request that failed */
};

/* A stream that is being read. */
struct reading {
    double sent, last;
    struct str line; /* that is not whole */
    struct times between;
    double first;
    uint64_t tokens, prompt_tokens, events;
    bool done;
    struct str said; /* what is no event: the body of an error */
};

static void add_time(struct times *t, double x)
{
    t->v = xgrow(t->v, &t->cap, t->n + 1, sizeof(*t->v));
    t->v[t->n++] = x;
}

/* ---- a stream ---- */

static bool has_text(const struct json *choice)
{
    const struct json *delta = json_get(choice, "delta");
    const struct json *text =
        delta ? json_get(delta, "content") : json_get(choice, "text");

    return json_string(text) && text->n;
}

static void take_event(struct reading *r, const char *data)
{
    const double now = clock_seconds();
    struct json_doc doc;
    struct err err = { 0 };
    const struct json *usage;

    if (!strcmp(data, "[DONE]")) {
        r->done = true;
        return;
    }
    if (json_parse(&doc, "event", data, strlen(data), &err) < 0)
        return;
    if (json_get(doc.root, "error"))
        json_print(&r->said, json_get(doc.root, "error"));
    if (json_get(doc.root, "choices") &&
        has_text(json_get(doc.root, "choices")->first)) {
        if (r->events++)
            add_time(&r->between, now - r->last);
        else
            r->first = now - r->sent;
        r->last = now;
    }
    usage = json_get(doc.root, "usage");
    (void)json_u64(json_get(usage, "completion_tokens"), &r->tokens);
    (void)json_u64(json_get(usage, "prompt_tokens"), &r->prompt_tokens);
    json_clear(&doc);
}

static void take_line(struct reading *r)
{
    const char *line = str_text(&r->line);

    if (str_starts(line, "data: "))
        take_event(r, line + 6);
    else if (r->line.len && *line != ':')
        str_add(&r->said, line);
}

static int take(void *arg, const char *bytes, size_t n)
{
    struct reading *r = arg;

    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != '\n') {
            if (bytes[i] != '\r')
                str_addc(&r->line, bytes[i]);
            continue;
        }
        take_line(r);
        str_reset(&r->line);
    }
    return 0;
}

static int ask(struct load *l, size_t index, struct reading *r, struct err *err)
{
    struct client_request request = { .method = "POST",
                                      .path = "/v1/completions",
                                      .key = getenv("SHARDUTILS_API_KEY") };
    struct str body = { 0 };
    int status, ret;

    str_add(&body, "{\"model\":");
    str_add_json(&body, l->model);
    str_addf(&body, ",\"prompt\":\"%zu ", index); /* so that none shares another's */
    str_reset(&r->said);
    str_add_json(&r->said, l->prompt);
    str_add(&body, str_text(&r->said) + 1);
    str_reset(&r->said);
    str_addf(&body,
             ",\"max_tokens\":%d,\"seed\":%zu,\"ignore_eos\":true,\"stream\":true,"
             "\"stream_options\":{\"include_usage\":true}}",
             l->max_tokens, index);
    request.body = str_text(&body);
    r->sent = clock_seconds();
    ret = client_run(&l->url, &request, &status, take, r, err);
    str_clear(&body);
    take_line(r);
    if (ret < 0 || (status == 200 && r->done && !r->said.len))
        return ret;
    return err_set(err, ERR_NO, "status %d: %.400s", status, str_text(&r->said));
}

static void *run_client(void *arg)
{
    struct load *l = arg;

    for (;;) {
        struct reading r = { 0 };
        struct err err = { 0 };
        size_t index;
        int ret;

        pthread_mutex_lock(&l->lock);
        index = l->next++;
        pthread_mutex_unlock(&l->lock);
        if (index >= l->total)
            return NULL;
        ret = ask(l, index, &r, &err);
        pthread_mutex_lock(&l->lock);
        if (ret < 0) {
            l->failed++;
            l->err = err;
        } else {
            l->tokens += r.tokens ? r.tokens : r.events;
            l->prompt_tokens += r.prompt_tokens;
            if (r.events)
                add_time(&l->first, r.first);
            for (size_t i = 0; i < r.between.n; i++)
                add_time(&l->between, r.between.v[i]);
        }
        pthread_mutex_unlock(&l->lock);
        free(r.between.v);
        str_clear(&r.line);
        str_clear(&r.said);
    }
}

/* ---- loads ---- */

static double part_of(const struct times *t, double part)
{
    return t->n ? t->v[(size_t)((double)(t->n - 1) * part)] : 0;
}

static void add_times(struct str *out, const char *name, const struct times *t)
{
    str_addf(out, ",\"%s\":{\"p50\":%.6g,\"p90\":%.6g,\"p99\":%.6g}", name,
             part_of(t, .5), part_of(t, .9), part_of(t, .99));
}

static void print_load(const struct load *l, int clients, double seconds)
{
    const double rate = seconds > 0 ? (double)l->tokens / seconds : 0;
    const double cost = rate > 0 ? l->price / 3600 / rate * 1e6 : 0;
    struct str out = { 0 };

    if (!l->json) {
        printf("%7d %8zu %6zu %12.1f %9.1f %9.1f %9.2f %9.2f", clients, l->total,
               l->failed, rate, part_of(&l->first, .5) * 1e3,
               part_of(&l->first, .99) * 1e3, part_of(&l->between, .5) * 1e3,
               part_of(&l->between, .99) * 1e3);
        printf(l->price > 0 ? " %10.2f\n" : "\n", cost);
        return;
    }
    str_addf(&out,
             "{\"type\":\"load\",\"clients\":%d,\"requests\":%zu,\"failed\":%zu,"
             "\"prompt_tokens\":%" PRIu64 ",\"tokens\":%" PRIu64
             ",\"seconds\":%.6g,\"tokens_per_second\":%.6g",
             clients, l->total, l->failed, l->prompt_tokens, l->tokens, seconds, rate);
    add_times(&out, "time_to_first_token", &l->first);
    add_times(&out, "between_tokens", &l->between);
    if (l->price > 0)
        str_addf(&out, ",\"cost_per_million_tokens\":%.6g", cost);
    puts(str_text(&out));
    str_clear(&out);
}

static void run_load(struct load *l, int clients)
{
    pthread_t *thread = xcalloc((size_t)clients, sizeof(*thread));
    double start = clock_seconds();
    int n = 0;

    l->next = l->failed = l->first.n = l->between.n = 0;
    l->tokens = l->prompt_tokens = 0;
    l->total = l->requests ? (size_t)l->requests : (size_t)clients * EACH;
    while (n < clients && pthread_create(&thread[n], NULL, run_client, l) == 0)
        n++;
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    free(thread);
    sort_doubles(l->first.v, l->first.n);
    sort_doubles(l->between.v, l->between.n);
    print_load(l, clients, clock_seconds() - start);
    fflush(stdout);
}

static int keep(void *arg, const char *bytes, size_t n)
{
    struct str *body = arg;

    str_addn(body, bytes, n);
    return body->len < 1 << 20 ? 0 : -1;
}

/* The first model that the server lists, unless one is named. */
static int find_model(struct load *l, struct err *err)
{
    const struct client_request r = { .method = "GET",
                                      .path = "/v1/models",
                                      .key = getenv("SHARDUTILS_API_KEY") };
    struct str body = { 0 };
    struct json_doc doc;
    const struct json *data, *id;
    int status, ret;

    if (l->model)
        return 0;
    ret = client_run(&l->url, &r, &status, keep, &body, err);
    if (ret == 0 && status != 200)
        ret = err_set(err, ERR_NO, "/v1/models: status %d: %.400s", status,
                      str_text(&body));
    if (ret == 0)
        ret = json_parse(&doc, "/v1/models", str_text(&body), body.len, err);
    str_clear(&body);
    if (ret < 0)
        return -1;
    data = json_get(doc.root, "data");
    id = data && data->first ? json_get(data->first, "id") : NULL;
    if (json_string(id))
        l->model = l->found = xstrdup(json_string(id));
    else
        ret = err_set(err, ERR_INPUT, "/v1/models: no model; give --model");
    json_clear(&doc);
    return ret;
}

static int run_loads(struct load *l, bool *failed, struct err *err)
{
    const char *at = l->clients;
    char word[16];

    if (find_model(l, err) < 0)
        return -1;
    if (!l->json)
        printf("%7s %8s %6s %12s %9s %9s %9s %9s%s\n", "clients", "requests", "failed",
               "tokens/s", "first p50", "p99 (ms)", "next p50", "p99 (ms)",
               l->price > 0 ? "  cost/10^6" : "");
    while (*at) {
        size_t n = strcspn(at, ",");
        int clients;

        memcpy(word, at, n < sizeof(word) ? n : sizeof(word) - 1);
        word[n < sizeof(word) ? n : sizeof(word) - 1] = '\0';
        if (!str_int(word, &clients) || clients < 1 || clients > MOST_CLIENTS)
            return err_set(err, ERR_USAGE,
                           "--clients: expected numbers of 1 to %d, with commas "
                           "between, not '%s'",
                           MOST_CLIENTS, l->clients);
        run_load(l, clients);
        *failed |= l->failed > 0;
        at += n + (at[n] == ',');
    }
    return 0;
}

int load_main(const char *program, int argc, char **argv)
{
    struct load l = { .clients = "1,8", .prompt = "Hello", .max_tokens = 64 };
    bool failed = false;
    const struct opt opts[] = {
        { OPT_STRING, '\0', "clients", &l.clients, "LIST",
          "numbers of clients at a time (default: 1,8)", NULL, NULL },
        { OPT_COUNT, '\0', "requests", &l.requests, "N",
          "requests of each load (default: 4 a client)", NULL, NULL },
        { OPT_STRING, 'p', "prompt", &l.prompt, "TEXT",
          "what is continued, after a number (default: Hello)", NULL, NULL },
        { OPT_COUNT, '\0', "max-tokens", &l.max_tokens, "N",
          "tokens of an answer (default: 64)", NULL, NULL },
        { OPT_STRING, '\0', "model", &l.model, "NAME",
          "the model (default: the first that the server has)", NULL, NULL },
        { OPT_DOUBLE, '\0', "price", &l.price, "X",
          "the cost of an hour: prints that of tokens", NULL, NULL },
        { OPT_FLAG, '\0', "json", &l.json, NULL, "print one JSON object a load", NULL,
          NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = { .name = "load",
                             .program = program,
                             .own_page = true,
                             .synopsis = "[OPTION]... URL",
                             .summary = "Measure a server of OpenAI's interface",
                             .opts = opts,
                             .min_args = 1,
                             .max_args = 1 };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct err err = { 0 };
    int status;

    pthread_mutex_init(&l.lock, NULL);
    if (client_url_parse(&l.url, operand[0], &err) < 0 ||
        run_loads(&l, &failed, &err) < 0) {
        status = cmd_fail(&cmd, &err);
    } else {
        if (failed)
            cmd_warn(&cmd, "%s", l.err.text);
        status = cmd_finish(&cmd, failed ? ERR_NO : 0);
    }
    free(l.first.v);
    free(l.between.v);
    free(l.found);
    client_url_clear(&l.url);
    pthread_mutex_destroy(&l.lock);
    return status;
}
