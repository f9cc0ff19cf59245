/* load - measures a server of OpenAI's interface with many clients
 *
 * Each client sends a request, reads its stream to the end, and sends the next (a
 * closed loop); or requests come at times of their own, however busy the server is (an
 * open loop): a Poisson process, or times from a file. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <time.h>

#include "cmd/picture.h"
#include "cmd/tp-run/commands.h"
#include "lib/base/clock.h"
#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/rng.h"
#include "lib/base/sort.h"
#include "lib/plot/chart.h"
#include "lib/serve/client.h"

enum { EACH = 4, OPEN = 32, MOST_CLIENTS = 4096, MOST_FILE = 64 << 20 };

struct times {
    double *v; /* [n], seconds */
    size_t n, cap;
};

/* A request of an open loop. */
struct arrival {
    double at;      /* seconds */
    char *prompt;   /* or NULL, and */
    int max_tokens; /* 0: those of the options */
};

/* What one load has measured. */
struct measured {
    double load;                 /* clients, or requests a second */
    double rate;                 /* tokens a second */
    double first[2], between[2]; /* p50 and p99, seconds */
};

struct load {
    struct client_url url;
    const char *clients, *model, *prompt;
    const char *rates, *file, *plot;
    uint64_t seed;
    struct arrival *arrival; /* [total] of an open loop, or NULL */
    double start;
    struct measured *measured; /* [n] */
    size_t n, cap;
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

    if (!json_string(text) || !text->n)
        text = json_get(delta, "reasoning_content");
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
    const struct arrival *own = l->arrival ? &l->arrival[index] : NULL;
    struct str body = { 0 };
    int status, ret;

    str_add(&body, "{\"model\":");
    str_add_json(&body, l->model);
    str_addf(&body, ",\"prompt\":\"%zu ", index); /* so that none shares another's */
    str_reset(&r->said);
    str_add_json(&r->said, own && own->prompt ? own->prompt : l->prompt);
    str_add(&body, str_text(&r->said) + 1);
    str_reset(&r->said);
    str_addf(&body,
             ",\"max_tokens\":%d,\"seed\":%zu,\"ignore_eos\":true,\"stream\":true,"
             "\"stream_options\":{\"include_usage\":true}}",
             own && own->max_tokens ? own->max_tokens : l->max_tokens, index);
    request.body = str_text(&body);
    r->sent = own ? l->start + own->at : clock_seconds();
    ret = client_run(&l->url, &request, &status, take, r, err);
    str_clear(&body);
    take_line(r);
    if (ret < 0 || (status == 200 && r->done && !r->said.len))
        return ret;
    return err_set(err, ERR_NO, "status %d: %.400s", status, str_text(&r->said));
}

static void wait_until(double when)
{
    const double left = when - clock_seconds();
    struct timespec t = { .tv_sec = (time_t)left };

    t.tv_nsec = (long)((left - (double)t.tv_sec) * 1e9);
    while (left > 0 && nanosleep(&t, &t) < 0 && errno == EINTR)
        ;
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
        if (l->arrival)
            wait_until(l->start + l->arrival[index].at);
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

/* What the first column and the plot's axis are about. */
static const char *axis_of(const struct load *l)
{
    return l->arrival ? "rate" : "clients";
}

static void print_load(const struct load *l, const struct measured *m, double seconds)
{
    const double cost = m->rate > 0 ? l->price / 3600 / m->rate * 1e6 : 0;
    struct str out = { 0 };

    if (!l->json) {
        printf("%7.4g %8zu %6zu %12.1f %9.1f %9.1f %9.2f %9.2f", m->load, l->total,
               l->failed, m->rate, m->first[0] * 1e3, m->first[1] * 1e3,
               m->between[0] * 1e3, m->between[1] * 1e3);
        printf(l->price > 0 ? " %10.2f\n" : "\n", cost);
        return;
    }
    str_addf(&out,
             "{\"type\":\"load\",\"%s\":%.9g,\"requests\":%zu,\"failed\":%zu,"
             "\"prompt_tokens\":%" PRIu64 ",\"tokens\":%" PRIu64
             ",\"seconds\":%.6g,\"tokens_per_second\":%.6g",
             axis_of(l), m->load, l->total, l->failed, l->prompt_tokens, l->tokens,
             seconds, m->rate);
    add_times(&out, "time_to_first_token", &l->first);
    add_times(&out, "between_tokens", &l->between);
    if (l->price > 0)
        str_addf(&out, ",\"cost_per_million_tokens\":%.6g", cost);
    puts(str_text(&out));
    str_clear(&out);
}

/* Runs .total requests by so many clients at a time; LOAD is told. */
static void run_load(struct load *l, int clients, double load)
{
    pthread_t *thread = xcalloc((size_t)clients, sizeof(*thread));
    struct measured m = { .load = load };
    double seconds;
    int n = 0;

    l->next = l->failed = l->first.n = l->between.n = 0;
    l->tokens = l->prompt_tokens = 0;
    l->start = clock_seconds();
    while (n < clients && pthread_create(&thread[n], NULL, run_client, l) == 0)
        n++;
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    free(thread);
    seconds = clock_seconds() - l->start;
    sort_doubles(l->first.v, l->first.n);
    sort_doubles(l->between.v, l->between.n);
    m.rate = seconds > 0 ? (double)l->tokens / seconds : 0;
    for (int i = 0; i < 2; i++) {
        m.first[i] = part_of(&l->first, i ? .99 : .5);
        m.between[i] = part_of(&l->between, i ? .99 : .5);
    }
    l->measured = xgrow(l->measured, &l->cap, l->n + 1, sizeof(*l->measured));
    l->measured[l->n++] = m;
    print_load(l, &m, seconds);
    fflush(stdout);
}

/* ---- open loops ---- */

static void free_arrivals(struct load *l)
{
    for (size_t i = 0; l->arrival && i < l->total; i++)
        free(l->arrival[i].prompt);
    free(l->arrival);
    l->arrival = NULL;
}

/* The times between arrivals of a Poisson process have an exponential distribution. */
static void draw_arrivals(struct load *l, double rate)
{
    struct rng rng;
    double at = 0;

    rng_init(&rng, l->seed, 0);
    l->total = l->requests ? (size_t)l->requests : OPEN;
    l->arrival = xcalloc(l->total, sizeof(*l->arrival));
    for (size_t i = 0; i < l->total; i++) {
        l->arrival[i].at = at;
        at -= log(1 - rng_uniform(&rng)) / rate;
    }
}

/* A number of seconds, or {"at": SECONDS, "prompt": TEXT, "max_tokens": N}. */
static int read_arrival(struct arrival *a, const char *name, const char *line, size_t n,
                        struct err *err)
{
    struct json_doc doc;
    const struct json *at, *prompt, *most;
    int64_t tokens = 0;
    int ret = 0;

    if (json_parse(&doc, name, line, n, err) < 0)
        return -1;
    at = doc.root->type == JSON_NUMBER ? doc.root : json_get(doc.root, "at");
    prompt = json_get(doc.root, "prompt");
    most = json_get(doc.root, "max_tokens");
    if (!json_double(at, &a->at) || a->at < 0 || a->at > 1e6)
        ret = json_error(&doc, doc.root, err,
                         "expected seconds of 0 to 1000000, or an object with \"at\"");
    else if (prompt && !json_string(prompt))
        ret = json_error(&doc, prompt, err, "\"prompt\" is no text");
    else if (most && (!json_i64(most, &tokens) || tokens < 1 || tokens > INT32_MAX))
        ret = json_error(&doc, most, err, "\"max_tokens\" is no number of tokens");
    else if (prompt)
        a->prompt = xstrdup(json_string(prompt));
    a->max_tokens = (int)tokens;
    json_clear(&doc);
    return ret;
}

static int by_time(const void *a, const void *b)
{
    const struct arrival *x = a, *y = b;

    return (x->at > y->at) - (x->at < y->at);
}

static int read_arrivals(struct load *l, struct err *err)
{
    char *text = NULL, *end;
    size_t n = 0, cap = 0, number = 0;
    int ret = fs_read_regular(&text, &n, l->file, MOST_FILE, err);

    l->total = 0;
    for (char *line = text; ret == 0 && line < text + n; line = end + 1) {
        char *name = str_dupf("%s:%zu", l->file, ++number);

        end = memchr(line, '\n', (size_t)(text + n - line));
        end = end ? end : text + n;
        if (end > line) {
            l->arrival = xgrow(l->arrival, &cap, l->total + 1, sizeof(*l->arrival));
            l->arrival[l->total] = (struct arrival){ 0 };
            ret = read_arrival(&l->arrival[l->total++], name, line,
                               (size_t)(end - line), err);
        }
        free(name);
    }
    free(text);
    if (ret == 0 && !l->total)
        ret = err_set(err, ERR_INPUT, "%s: no request", l->file);
    if (ret == 0)
        qsort(l->arrival, l->total, sizeof(*l->arrival), by_time);
    return ret;
}

/* Each request has a client of its own, so that none waits for another here. */
static void run_open(struct load *l, double rate, bool *failed)
{
    run_load(l, l->total < MOST_CLIENTS ? (int)l->total : MOST_CLIENTS, rate);
    *failed |= l->failed > 0;
    free_arrivals(l);
}

/* ---- a picture ---- */

static const double WIDTH = 640, LEFT = 70, TOP = 60, PANEL = 200, APART = 70;

/* The lines of the lower chart: times in milliseconds. */
static double time_of(const struct measured *m, int which)
{
    return (which < 2 ? m->first[which] : m->between[which - 2]) * 1e3;
}

static void draw_lines(const struct load *l, struct chart *c, int lines, bool rates)
{
    chart_settle(&c->ax);
    chart_settle(&c->ay);
    chart_begin(c, rates ? "A server under load" : NULL);
    for (int k = 0; k < lines; k++)
        for (size_t i = 0; i < l->n; i++) {
            const struct measured *m = &l->measured[i], *before = m - 1;
            const double y = rates ? m->rate : time_of(m, k);

            chart_point(c, m->load, y, 2.5, canvas_colour(k));
            if (i)
                chart_line(c, before->load, rates ? before->rate : time_of(before, k),
                           m->load, y, 1.5, canvas_colour(k));
        }
}

static void draw(struct canvas *canvas, const void *arg)
{
    static const char *const names[] = { "first token p50", "first p99",
                                         "between tokens p50", "between p99" };
    const struct load *l = arg;
    const char *label = l->rates  ? "requests a second"
                        : l->file ? ""
                                  : "clients at a time";
    struct chart rate = { .canvas = canvas,
                          .x = LEFT,
                          .y = TOP,
                          .w = WIDTH - LEFT - 30,
                          .h = PANEL,
                          .ax = { .label = label },
                          .ay = { .label = "tokens/s" } };
    struct chart times = rate;

    times.y += PANEL + APART;
    times.ay.label = "ms";
    times.ay.log = true;
    for (size_t i = 0; i < l->n; i++) {
        chart_fit(&rate.ax, l->measured[i].load);
        chart_fit(&times.ax, l->measured[i].load);
        chart_fit(&rate.ay, l->measured[i].rate);
        for (int k = 0; k < 4; k++)
            chart_fit(&times.ay, time_of(&l->measured[i], k));
    }
    chart_fit(&rate.ay, 0);
    draw_lines(l, &rate, 1, true);
    draw_lines(l, &times, 4, false);
    for (int k = 0; k < 4; k++)
        chart_legend(&times, names[k], canvas_colour(k));
}

static int write_plot(const struct load *l, const char *command, struct err *err)
{
    const struct figure f = { .caption =
                                  "Tokens a second, and times until tokens come, "
                                  "by load",
                              .width = WIDTH,
                              .height = TOP + 2 * PANEL + APART + 50,
                              .draw = draw,
                              .arg = (void *)(uintptr_t)l };

    return l->plot ? picture_write(&f, l->plot, "A server under load", command, err)
                   : 0;
}

/* ---- all loads ---- */

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

/* The next number of the list at *AT, of option NAME. */
static int next_number(const char **at, double *x, double least, double most,
                       const char *name, struct err *err)
{
    const size_t n = strcspn(*at, ",");
    char *word = xstrndup(*at, n);
    const bool good = str_double(word, x) && *x >= least && *x <= most;

    free(word);
    if (!good)
        return err_set(err, ERR_USAGE,
                       "--%s: expected numbers of %g to %g, with commas between", name,
                       least, most);
    *at += n + ((*at)[n] == ',');
    return 0;
}

static int run_loads(struct load *l, bool *failed, struct err *err)
{
    const char *at = l->rates ? l->rates : l->clients;
    double x;

    if (find_model(l, err) < 0 || (l->file && read_arrivals(l, err) < 0))
        return -1;
    if (!l->json)
        printf("%7s %8s %6s %12s %9s %9s %9s %9s%s\n",
               l->rates || l->file ? "per s" : "clients", "requests", "failed",
               "tokens/s", "first p50", "p99 (ms)", "next p50", "p99 (ms)",
               l->price > 0 ? "  cost/10^6" : "");
    if (l->file) {
        x = l->arrival[l->total - 1].at;
        run_open(l, x > 0 ? (double)l->total / x : (double)l->total, failed);
        return 0;
    }
    while (*at) {
        if (next_number(&at, &x, l->rates ? 1e-3 : 1, l->rates ? 1e5 : MOST_CLIENTS,
                        l->rates ? "rate" : "clients", err) < 0)
            return -1;
        if (l->rates) {
            draw_arrivals(l, x);
            run_open(l, x, failed);
            continue;
        }
        if (x != floor(x))
            return err_set(err, ERR_USAGE, "--clients: %g is no whole number", x);
        l->total = l->requests ? (size_t)l->requests : (size_t)x * EACH;
        run_load(l, (int)x, x);
        *failed |= l->failed > 0;
    }
    return 0;
}

int load_main(const char *program, int argc, char **argv)
{
    struct load l = { .prompt = "Hello", .max_tokens = 64 };
    const char *command = picture_command(program, argc, argv);
    bool failed = false;
    const struct opt opts[] = {
        { OPT_STRING, '\0', "clients", &l.clients, "LIST",
          "numbers of clients at a time (default: 1,8)", NULL, NULL },
        { OPT_STRING, '\0', "rate", &l.rates, "LIST",
          "or requests a second, at random times", NULL, NULL },
        { OPT_STRING, '\0', "arrivals", &l.file, "FILE",
          "or at the times of FILE, a line each", NULL, NULL },
        { OPT_U64, '\0', "seed", &l.seed, "S", "of the random times", NULL, NULL },
        { OPT_COUNT, '\0', "requests", &l.requests, "N",
          "requests of each load (default: 4 a client; 32)", NULL, NULL },
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
        { OPT_STRING, '\0', "plot", &l.plot, "FILE", "draw them: " PICTURE_NAMES, NULL,
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
    int status = 0;

    if ((l.clients != NULL) + (l.rates != NULL) + (l.file != NULL) > 1)
        return cmd_usage(&cmd, "--clients, --rate and --arrivals: one of them");
    if (l.plot)
        status = picture_check(&cmd, "--plot", l.plot);
    if (status)
        return status;
    if (!l.clients)
        l.clients = "1,8";
    pthread_mutex_init(&l.lock, NULL);
    if (client_url_parse(&l.url, operand[0], &err) < 0 ||
        run_loads(&l, &failed, &err) < 0 || write_plot(&l, command, &err) < 0) {
        status = cmd_fail(&cmd, &err);
    } else {
        if (failed)
            cmd_warn(&cmd, "%s", l.err.text);
        status = cmd_finish(&cmd, failed ? ERR_NO : 0);
    }
    free(l.first.v);
    free(l.between.v);
    free(l.found);
    free(l.measured);
    free_arrivals(&l);
    client_url_clear(&l.url);
    pthread_mutex_destroy(&l.lock);
    return status;
}
