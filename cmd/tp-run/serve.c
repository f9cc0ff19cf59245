/* serve - answers requests of OpenAI's HTTP interface with a model
 *
 * Rank 0 has the web server, the template and the tokenizer, and decides the steps; the
 * other ranks run them. */
#define _GNU_SOURCE
#include "cmd/tp-run/commands.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "cmd/tp-run/drafting.h"
#include "cmd/tp-run/endpoints.h"
#include "cmd/tp-run/jobs.h"
#include "cmd/tp-run/pooled.h"
#include "lib/base/fs.h"
#include "lib/run/adapter.h"
#include "lib/run/serving.h"
#include "lib/serve/address.h"

enum {
    USUAL = 8192, /* default limit of a text's tokens, where the model permits more */
    ROOM = 4,     /* default size of the cache, in such texts */
    LAST_S = 5    /* for answers on their way when the server ends */
};

static const char *const task_names[] = { "auto", "generate", "embed", "rerank", NULL };

struct serve {
    struct session *session;
    struct sampling sampling;
    struct drafting drafting;
    struct messages_options options;
    const char *listen, *name;
    const char *key_file, *log_file;
    struct str layout;
    bool no_key;
    int requests, cache_tokens, drain_s, waiting;
    struct http_limits limits;
    uint64_t most_body;
    int adopted;   /* a socket that somebody listens at for us; -1: none */
    int hangups;   /* SIGHUPs that are heeded */
    bool stopping; /* systemd knows */
    bool no_sharing;
    uint64_t context;     /* maximum number of tokens of a text */
    int asked_task;       /* enum pooled_task */
    struct pooled pooled; /* unless it generates */
    /* on rank 0 */
    struct messages_form form;
    struct endpoints endpoints;
    struct jobs *jobs;
    struct drafter *drafter; /* or NULL */
};

/* ---- ranks ---- */

static struct program_options options_of(const struct serve *v)
{
    const struct session *s = v->session;

    if (v->pooled.task != TASK_GENERATE)
        return pooled_options(&v->pooled);
    return (struct program_options){ .wanted = true,
                                     .deterministic = s->opt.same_bits,
                                     .rounded = s->opt.compute == COMPUTE_BF16,
                                     .tail = TAIL_SAMPLE,
                                     .keeps_logits = true };
}

static struct engine_limits limits_of(const struct serve *v)
{
    const struct serving how = { .context = (size_t)v->context,
                                 .told = SERVING_TOLD,
                                 .drafts = drafting_most(&v->drafting),
                                 .requests = (size_t)v->requests,
                                 .cache_tokens = v->cache_tokens
                                                     ? (size_t)v->cache_tokens
                                                     : (size_t)v->context * ROOM };

    return v->pooled.task == TASK_GENERATE ? serving_limits(&how, &v->session->mesh)
                                           : pooled_limits(&v->pooled, how.context);
}

/* The same on all ranks, but for what rank 0 alone calls. */
static struct scheduler_options scheduling(struct serve *v,
                                           const struct engine_limits *limits)
{
    if (v->pooled.task != TASK_GENERATE)
        return (struct scheduler_options){ .limits = limits,
                                           .see = pooled_see,
                                           .collect = pooled_collect,
                                           .arg = &v->pooled };
    return (struct scheduler_options){ .grow = true,
                                       .no_sharing = v->no_sharing,
                                       .limits = limits,
                                       .gain = jobs_gain,
                                       .told = jobs_told,
                                       .draft = v->drafting.what ? jobs_draft : NULL,
                                       .arg = v->jobs };
}

static void say_ready(const struct serve *v, const struct address *at)
{
    struct str out = { 0 };

    str_add(&out, "{\"type\":\"listening\",\"url\":");
    str_add_json(&out, str_text(&at->url));
    str_add(&out, ",\"model\":");
    str_add_json(&out, v->name);
    str_addf(&out, ",\"max_model_len\":%" PRIu64 "}", v->context);
    puts(str_text(&out));
    str_clear(&out);
}

/* Tells systemd, if it waits for it (sd_notify(3)): a datagram to a Unix socket, whose
 * name may be abstract. */
static void notify(const struct serve *v, const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    size_t n = path ? strlen(path) : 0;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    int fd;

    if (!n || n >= sizeof(at.sun_path))
        return;
    memcpy(at.sun_path, path, n);
    if (*path == '@')
        at.sun_path[0] = '\0';
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL,
                         (const struct sockaddr *)&at, size) < 0)
        cmd_warn(v->session->cmd, "NOTIFY_SOCKET: %s", strerror(errno));
    if (fd >= 0)
        close(fd);
}

/* SIGHUP: keys are read again, and the log's name is looked up again. */
static void heed(void *arg)
{
    struct serve *v = arg;
    const int hangups = v->session->launcher.stop->hangups;
    struct err err = { 0 };

    if (v->endpoints.log && accesslog_failed(v->endpoints.log, &err))
        cmd_warn(v->session->cmd, "%s; requests are answered all the same", err.text);
    if (v->session->launcher.stop->signal && !v->stopping) {
        v->stopping = true;
        notify(v, "STOPPING=1");
    }
    if (hangups == v->hangups)
        return;
    v->hangups = hangups;
    if (v->endpoints.log && accesslog_reopen(v->endpoints.log, &err) < 0)
        cmd_warn(v->session->cmd, "%s; the old file goes on", err.text);
    if (v->endpoints.keys && apikeys_reload(v->endpoints.keys, &err) < 0)
        cmd_warn(v->session->cmd, "%s; the keys stay as they were", err.text);
}

/* Serves at the bound address AT until a signal asks for the end. */
static int serve(struct serve *v, struct address *at, struct scheduler *scheduler,
                 struct err *err)
{
    const struct http_handler handler = endpoints_handler(&v->endpoints);
    const struct jobs_orders orders = { .end = &v->session->launcher.stop->signal,
                                        .drain_s = v->drain_s,
                                        .heed = heed,
                                        .arg = v };
    struct http *http;
    int ret;

    /* of a page of another site whose name leads here */
    if (at->local && at->name && !v->endpoints.keys)
        v->endpoints.at = at;
    if (address_listen(at, err) < 0 ||
        http_open(&http, at->fd, &v->limits, &handler, err) < 0)
        return -1;
    at->fd = -1; /* the server's */
    say_ready(v, at);
    notify(v, "READY=1");
    if (fflush(stdout) < 0)
        ret = err_errno(err, "standard output");
    else
        ret = jobs_run(v->jobs, scheduler, &orders, err);
    http_close(http, LAST_S);
    return ret;
}

static int lead(struct serve *v, struct address *at, struct runner *r,
                const struct engine_limits *limits, struct err *err)
{
    struct queue *queue = queue_new((size_t)v->waiting);
    struct scheduler_options how;
    struct scheduler *scheduler = NULL;
    int ret;

    v->endpoints.queue = queue;
    v->endpoints.metrics = metrics_new();
    v->jobs = jobs_new(v->session, queue, v->endpoints.metrics, v->context);
    v->pooled.jobs = v->jobs;
    jobs_draft_by(v->jobs, v->drafter);
    how = scheduling(v, limits);
    ret = scheduler_open(&scheduler, r, &how, err);
    if (v->drafter)
        drafter_try(v->drafter, scheduler, r->nstages);
    if (ret == 0)
        ret = serve(v, at, scheduler, err);
    if (ret == 0)
        drafting_note(v->session, v->drafter, scheduler);
    ret = scheduler_close(scheduler, ret, err);
    jobs_free(v->jobs);
    queue_free(queue);
    metrics_free(v->endpoints.metrics);
    return ret;
}

static int follow(struct serve *v, struct runner *r, const struct engine_limits *limits,
                  struct err *err)
{
    const struct scheduler_options how = scheduling(v, limits);
    struct scheduler *scheduler = NULL;
    int ret = scheduler_open(&scheduler, r, &how, err);

    if (ret == 0)
        ret = scheduler_follow(scheduler, err);
    return scheduler_close(scheduler, ret, err);
}

static int bind_address(const struct serve *v, struct address *at, struct err *err)
{
    if (v->adopted >= 0 ? address_adopt(at, v->adopted, err) < 0
                        : address_bind(at, v->listen, err) < 0)
        return -1;
    if (at->local || v->endpoints.keys || v->no_key)
        return 0;
    return err_set(err, ERR_USAGE,
                   "%s: others can connect to it, and there is no key; give "
                   "--api-key-file, or --no-api-key if that is wanted",
                   str_text(&at->url));
}

static int serve_rank(void *arg, struct comm *comm, struct err *err)
{
    struct serve *v = arg;
    const struct session *s = v->session;
    const struct program_options options = options_of(v);
    struct engine_limits limits = limits_of(v);
    struct address at = { .fd = -1 };
    struct runner r;
    int ret;

    /* an address that is taken is known before the weights are read */
    if (comm->rank == 0 && bind_address(v, &at, err) < 0) {
        address_close(&at);
        return -1;
    }
    if (runner_open(&r, s->checkpoint, &s->mesh, &s->machine, comm, &options, &limits,
                    err) < 0) {
        address_close(&at);
        return -1;
    }
    ret = drafting_start(&v->drafter, &v->drafting, s, &r, &limits, true,
                         sampling_vocab(s), err);
    if (ret == 0)
        ret = drafting_report(s, &r, v->drafter, comm, err);
    if (ret == 0 && v->pooled.task != TASK_GENERATE)
        ret = pooled_begin(&v->pooled, &r, err);
    else if (ret == 0 && !r.program->causal)
        ret = err_set(err, ERR_INPUT, "family %s is an encoder and generates no text",
                      s->checkpoint->model->family);
    if (ret == 0)
        ret = comm->rank == 0 ? lead(v, &at, &r, &limits, err)
                              : follow(v, &r, &limits, err);
    drafter_close(v->drafter);
    ret = runner_finish(&r, ret, err);
    runner_close(&r);
    pooled_clear(&v->pooled);
    address_close(&at);
    return ret;
}

/* ---- the command ---- */

static int check_model(struct serve *v, struct err *err)
{
    const struct session *s = v->session;
    const uint64_t most = v->cache_tokens ? (uint64_t)v->cache_tokens : USUAL;

    if (pooled_find_task(&v->pooled.task, (enum pooled_task)v->asked_task, s, err) <
            0 ||
        pooled_init(&v->pooled, s, v->pooled.task, err) < 0)
        return -1;
    if (v->pooled.task == TASK_GENERATE && session_need_lm(s, err) < 0)
        return -1;
    if (v->pooled.task != TASK_GENERATE && v->drafting.what)
        return err_set(err, ERR_USAGE, "--draft: this model generates no text here");
    if (drafting_open(&v->drafting, s, err) < 0)
        return -1;
    if (s->source)
        return err_set(err, ERR_INPUT,
                       "family %s has an encoder: serve is for decoders, and 'tp-run "
                       "generate' runs it",
                       s->checkpoint->model->family);
    v->context = s->context && s->context < most ? s->context : most;
    return 0;
}

/* Such as "tp=2,pp=2". */
static void add_layout(struct str *out, const struct mesh *m)
{
    for (int i = 0; i < MESH_NAXES; i++)
        if (m->size[i] > 1)
            str_addf(out, "%s%s=%d", out->len ? "," : "", mesh_axis_names[i],
                     m->size[i]);
    if (!out->len)
        str_add(out, "tp=1");
}

/* On rank 0.  A model without a template answers completions alone. */
static int prepare(struct serve *v, struct err *err)
{
    struct session *s = v->session;
    struct endpoints *e = &v->endpoints;
    const char *given = getenv("SHARDUTILS_API_KEY");

    if (adapter_find(s->checkpoint->adapter, v->name))
        return err_set(err, ERR_USAGE,
                       "--adapter: '%s' is the name of the model; --served-name gives "
                       "it another",
                       v->name);
    if (!s->tokenizer && s->no_tokenizer.kind)
        return err_set(err, s->no_tokenizer.kind, "%s", s->no_tokenizer.text);
    if (!s->tokenizer)
        return err_set(err, ERR_INPUT, "%s: no tokenizer.json, which requests need",
                       s->path);
    s->replaces = true; /* JSON is UTF-8 */
    *e = (struct endpoints){ .session = s,
                             .task = v->pooled.task,
                             .sampling = &v->sampling,
                             .name = v->name,
                             .context = v->context,
                             .created = (int64_t)time(NULL) };
    if (!v->no_key && (v->key_file || given) &&
        apikeys_open(&e->keys, v->key_file, given, err) < 0)
        return -1;
    if (v->log_file && accesslog_open(&e->log, v->log_file, err) < 0)
        return -1;
    add_layout(&v->layout, &s->mesh);
    e->layout = str_text(&v->layout);
    if (v->pooled.task != TASK_GENERATE) {
        err_set(&e->no_form, ERR_INPUT, "this server makes no chats");
        return 0;
    }
    if (messages_open(&v->form, s, &v->options, err) == 0) {
        e->form = &v->form;
        for (size_t i = 0; i < s->stop.n; i++)
            ids_add(&e->chat_stop, s->stop.v[i]);
        return messages_stop(&v->form, &e->chat_stop, err);
    }
    if (v->options.template || v->options.args.n || err->kind != ERR_INPUT)
        return -1;
    e->no_form = *err;
    *err = (struct err){ 0 };
    return 0;
}

static int open_serve(struct serve *v, struct err *err)
{
    struct session *s = v->session;
    const bool front = launcher_is_front(&s->launcher);
    struct program_options options;

    if (check_model(v, err) < 0 || sampling_settle(&v->sampling, s, err) < 0)
        return -1;
    if (!v->sampling.how.v[PROCESSOR_TEMPERATURE].given &&
        !sampling_draws(&v->sampling))
        v->sampling.how.v[PROCESSOR_TEMPERATURE].number = 1;
    options = options_of(v);
    if (session_choose(s, &options, 1, err) < 0 ||
        launcher_agree(&s->launcher, front ? prepare(v, err) : 0, err) < 0)
        return -1;
    if (launcher_ask(&s->launcher, err) < 0)
        return -1;
    launcher_hear_hangups(&s->launcher);
    return 0;
}

/* The socket of a unit that systemd starts when somebody connects (sd_listen_fds(3)):
 * the first descriptor after those of every program. */
static int find_adopted(int *fd, bool listens, struct err *err)
{
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
    uint64_t own, count;

    *fd = -1;
    if (!pid || !n || !str_u64(pid, &own) || own != (uint64_t)getpid())
        return 0;
    if (!str_u64(n, &count) || count != 1)
        return err_set(err, ERR_USAGE, "LISTEN_FDS: %.20s sockets, and one is served",
                       n);
    if (listens)
        return err_set(
            err, ERR_USAGE,
            "--listen: the socket is that of systemd, which LISTEN_FDS says");
    *fd = STDERR_FILENO + 1;
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    return 0;
}

int serve_main(const char *program, int argc, char **argv)
{
    struct session_options opt = SESSION_DEFAULTS;
    struct session session = { 0 };
    struct serve v = {
        .session = &session,
        .sampling = SAMPLING_DEFAULTS(UINT64_MAX),
        .adopted = -1,
        .drain_s = 30,
        .waiting = 1024,
        .limits = { .connections = 1024, .head_s = 10, .body_s = 60, .idle_s = 75 },
        .most_body = 8 << 20
    };
    const struct opt opts[] = {
        { OPT_STRING, '\0', "listen", &v.listen, "WHERE",
          "ADDRESS:PORT, unix:PATH (default: 127.0.0.1:8000)", NULL, NULL },
        { OPT_CHOICE, '\0', "task", &v.asked_task, "TASK", NULL, task_names, NULL },
        { OPT_STRING, '\0', "served-name", &v.name, "NAME",
          "the model's name (default: its directory's)", NULL, NULL },
        { OPT_INT, '\0', "drain-timeout", &v.drain_s, "SECONDS",
          "for running answers after SIGTERM (default: 30)", NULL, NULL },
        { OPT_STRING, '\0', "api-key-file", &v.key_file, "FILE",
          "keys of clients, a line each", NULL, NULL },
        { OPT_STRING, '\0', "access-log", &v.log_file, "FILE", NULL, NULL, NULL },
        { OPT_FLAG, '\0', "no-api-key", &v.no_key, NULL, NULL, NULL, NULL },
        { OPT_COUNT, '\0', "max-connections", &v.limits.connections, "N", NULL, NULL,
          NULL },
        { OPT_COUNT, '\0', "max-waiting", &v.waiting, "N", NULL, NULL, NULL },
        { OPT_SIZE, '\0', "max-body", &v.most_body, "SIZE", NULL, NULL, NULL },
        { OPT_COUNT, '\0', "header-timeout", &v.limits.head_s, "SECONDS", NULL, NULL,
          NULL },
        { OPT_COUNT, '\0', "body-timeout", &v.limits.body_s, "SECONDS", NULL, NULL,
          NULL },
        { OPT_COUNT, '\0', "idle-timeout", &v.limits.idle_s, "SECONDS", NULL, NULL,
          NULL },
        MESSAGES_OPTIONS(v.options),
        SAMPLING_OPTIONS(v.sampling, "most new tokens of a request that gives none"),
        BATCHING_OPTIONS(v),
        DRAFTING_OPTIONS(v.drafting),
        SESSION_OPTIONS(opt),
        { .type = OPT_END },
    };
    const struct cmd cmd = { .name = "serve",
                             .program = program,
                             .own_page = true,
                             .synopsis = "[OPTION]... CHECKPOINT",
                             .summary = "Answer requests of OpenAI's HTTP interface",
                             .opts = opts,
                             .min_args = 1,
                             .max_args = 1 };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct err err = { 0 };
    char path[PATH_MAX];
    int status;

    v.limits.body = (size_t)v.most_body;
    if (find_adopted(&v.adopted, v.listen, &err) < 0)
        return cmd_fail(&cmd, &err);
    if (!v.listen)
        v.listen = "127.0.0.1:8000";
    if (http_check(&err) == 0 && sampling_check(&v.sampling, &err) == 0 &&
        session_open(&session, &cmd, &opt, operand[0], &err) == 0) {
        if (!v.name) /* of "." as well */
            v.name = fs_basename(realpath(operand[0], path) ? path : operand[0]);
        if (open_serve(&v, &err) == 0) {
            session.machine.steps = v.context;
            status = session_run(&session, serve_rank, &v);
        } else {
            status = cmd_fail(&cmd, &err);
        }
    } else {
        status = cmd_fail(&cmd, &err);
    }
    ids_clear(&v.endpoints.chat_stop);
    apikeys_close(v.endpoints.keys);
    accesslog_close(v.endpoints.log);
    str_clear(&v.layout);
    messages_close(&v.form);
    drafting_close(&v.drafting);
    session_close(&session);
    return status;
}
