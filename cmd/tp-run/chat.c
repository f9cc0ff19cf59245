/* chat - a conversation with a model, on a terminal or through a pipe
 *
 * Rank 0 has the person, the template and the tokenizer, and submits each answer to its
 * scheduler; the other ranks run the steps that this one decides. */
#include "cmd/tp-run/commands.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "cmd/tp-run/conversation.h"
#include "cmd/tp-run/inputs.h"
#include "cmd/tp-run/drafting.h"
#include "cmd/tp-run/lineedit.h"
#include "cmd/tp-run/sampling.h"
#include "lib/base/clock.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/run/cache.h"
#include "lib/run/scheduler.h"
#include "lib/run/serving.h"

enum {
    CHUNK = 512, /* prompt tokens of a step */
    ROOM = 8192  /* default limit of a conversation's tokens, where the model permits
                  * more: its cache is allocated at the start */
};

struct chat_session {
    struct session *session;
    struct sampling sampling;
    struct drafting drafting;
    int cache_tokens; /* of --cache-tokens; 0: see ROOM */
    uint64_t room;    /* maximum number of tokens of the conversation */
    const char *load, *system;
    bool no_history;
    bool typed; /* a person types the messages, and ^C is about the answer */
    struct messages_options options;
    /* on rank 0 */
    struct messages_form form;
    struct conversation talk;
    struct lineedit *lines;
    bool terminal; /* of a person */
    bool shown;    /* standard output is one */
    struct scheduler *scheduler;
    struct drafter *drafter; /* or NULL */
    struct answer *answer;   /* in generation */
};

/* An answer in generation, on rank 0. */
struct answer {
    struct chat_session *c;
    struct ids all;  /* the prompt and the new tokens */
    size_t prompt;   /* number of tokens */
    uint64_t cached; /* of these: that earlier answers have computed */
    enum finish finish;
    bool interrupted;
    struct token_stream *stream;
    struct saying said;
    size_t shown;          /* bytes of SAID that are printed */
    double first, seconds; /* time of its first new token; time since then */
};

/* ---- an answer ---- */

/* Prints what is new of the answer.  On a terminal nothing in it moves the cursor or
 * sets a colour. */
static int show(struct answer *a, struct err *err)
{
    const struct chat_session *c = a->c;
    const char *p = str_text(&a->said.text) + a->shown;
    const char *end = p + (a->said.text.len - a->said.held - a->shown);

    if (c->session->opt.json)
        return 0;
    if (!c->shown)
        fwrite(p, 1, (size_t)(end - p), stdout);
    while (c->shown && p < end) {
        char shown[STR_PRINTABLE];
        size_t n = str_printable(shown, p);

        if (*p == '\n' || *p == '\t')
            putchar(*p);
        else
            fputs(shown, stdout);
        p += n;
    }
    a->shown = a->said.text.len - a->said.held;
    return fflush(stdout) < 0 ? err_errno(err, "standard output") : 0;
}

/* A NaN in the logits ends the program as it ends generate. */
static int not_finite(const struct answer *a, struct err *err)
{
    struct input one = { .name = (char *)"conversation" };
    const struct inputs in = { .v = &one, .n = 1 };

    return inputs_not_finite(&in, a->c->session, 0, "logits", a->all.n, err);
}

static int draft(void *arg, struct scheduler_draft *v, size_t n, struct err *err)
{
    struct chat_session *c = arg;

    return drafter_draft(c->drafter, v, n, err);
}

static int gain(void *arg, const struct scheduler_gain *by, struct err *err)
{
    struct chat_session *c = arg;
    struct answer *a = c->answer;
    size_t n = a->all.n, new = n - a->prompt;
    int32_t next = by->next;

    if (next < 0)
        return sampling_is_stuck(&c->sampling, next, a->all.n, err)
                   ? -1
                   : not_finite(a, err);
    ids_add(&a->all, next);
    a->finish = sampling_is_stop(&c->sampling, next)
                    ? STOP
                    : sampling_end(&c->sampling, c->room, n + 1, new + 1);
    if (new == 0)
        a->first = clock_seconds();
    a->seconds = clock_seconds() - a->first;
    if (a->finish != STOP)
        token_stream_feed(a->stream, (uint32_t)next, &a->said.text);
    if (sampling_cut(&c->sampling, &a->said, a->finish != UNFINISHED))
        a->finish = STOP;
    if (a->finish == UNFINISHED)
        scheduler_append(c->scheduler, by->id, &next, 1);
    return show(a, err);
}

/* Generates the answer to the prompt in A->all. */
static int generate_answer(struct answer *a, uint64_t turn, struct err *err)
{
    struct chat_session *c = a->c;
    struct draw draw = { .seed = c->sampling.seed };
    struct choosing choosing;
    struct scheduler_text text = { .ids = a->all.v,
                                   .n = a->all.n,
                                   .most =
                                       sampling_most(&c->sampling, c->room, a->all.n),
                                   .draw = &draw,
                                   .how = &choosing };
    uint64_t before = scheduler_counts(c->scheduler).shared, id;
    int more = 1;

    draw.position = turn << 32;
    sampling_choose(&c->sampling, &choosing, a->all.n);
    a->prompt = a->all.n;
    a->finish = sampling_end(&c->sampling, c->room, a->prompt, 0);
    if (a->finish != UNFINISHED)
        return 0;
    c->answer = a;
    if (scheduler_submit(c->scheduler, &text, &id, err) < 0)
        return -1;
    while (more > 0) {
        more = scheduler_step(c->scheduler, err);
        if (more <= 0 || a->finish != UNFINISHED || !lineedit_was_interrupted())
            continue;
        a->interrupted = true;
        scheduler_cancel(c->scheduler, id);
    }
    a->cached = scheduler_counts(c->scheduler).shared - before;
    return more;
}

/* ---- rank 0: turns ---- */

struct talking {
    struct chat_session *c;
    uint64_t turn; /* answers so far */
};

/* Reports *err, after which a person goes on; a script ends. */
static int complain(const struct talking *t, struct err *err)
{
    if (!t->c->terminal)
        return -1;
    cmd_warn(t->c->session->cmd, "%s", err->text);
    *err = (struct err){ 0 };
    return 0;
}

static void print_json(const struct answer *a)
{
    const size_t n = a->all.n - a->prompt;
    struct str out = { 0 };

    str_add(&out, "{\"type\":\"message\",\"role\":\"assistant\",\"content\":");
    str_add_jsonn(&out, str_text(&a->said.text), a->said.text.len);
    str_addf(&out,
             ",\"finish\":\"%s\",\"prompt_tokens\":%zu,\"tokens\":%zu,"
             "\"tokens_per_second\":%.6g,\"cached_tokens\":%" PRIu64 "}\n",
             a->interrupted ? "interrupted" : finish_names[a->finish], a->prompt, n,
             n > 1 && a->seconds > 0 ? (double)(n - 1) / a->seconds : 0, a->cached);
    fputs(str_text(&out), stdout);
    str_clear(&out);
}

/* Says why the answer ended, unless the model ended it. */
static void print_end(const struct talking *t, const struct answer *a)
{
    const struct session *s = t->c->session;
    size_t n = a->all.n - a->prompt;

    if (s->opt.json)
        print_json(a);
    else if (!a->said.text.len || a->said.text.s[a->said.text.len - 1] != '\n')
        putchar('\n');
    fflush(stdout);
    if (s->opt.quiet)
        return;
    if (a->interrupted && a->said.text.len)
        cmd_warn(s->cmd, "interrupted; what was said stays in the conversation");
    else if (a->interrupted)
        cmd_warn(s->cmd, "interrupted before the answer; the message is withdrawn");
    else if (a->finish == LENGTH)
        cmd_warn(s->cmd, "the answer was ended after %zu tokens (--max-tokens)", n);
    else if (a->finish == CONTEXT)
        cmd_warn(
            s->cmd,
            "the answer was ended: the conversation has all %llu tokens that there "
            "is room for; /reset begins a new one, after /save FILE perhaps",
            (unsigned long long)t->c->room);
}

/* The ids of the conversation, if there is room for them. */
static int fill_prompt(const struct talking *t, struct ids *ids, struct err *err)
{
    const struct chat_session *c = t->c;
    const struct session *s = c->session;

    if (conversation_ids(&c->talk, &c->form, ids, err) < 0)
        return -1;
    if (!ids->n)
        return err_set(err, ERR_INPUT, "the template makes an empty prompt");
    if (ids->n > c->room && s->context && c->room == s->context)
        return err_set(err, ERR_INPUT,
                       "the conversation has %zu tokens, and the model takes %llu: "
                       "/reset begins a new one, after /save FILE perhaps",
                       ids->n, (unsigned long long)c->room);
    if (ids->n > c->room)
        return err_set(err, ERR_INPUT,
                       "the conversation has %zu tokens, and there is room for %llu: "
                       "/reset begins a new one, and --cache-tokens makes room",
                       ids->n, (unsigned long long)c->room);
    if (c->sampling.max_length && ids->n >= c->sampling.max_length)
        return err_set(err, ERR_INPUT,
                       "the conversation has %zu tokens, and the model's max_length is "
                       "%llu; give --max-tokens",
                       ids->n, (unsigned long long)c->sampling.max_length);
    return 0;
}

/* Answers the last message.  If that is impossible, it is withdrawn. */
static int take_turn(struct talking *t, struct err *err)
{
    struct chat_session *c = t->c;
    struct answer a = { .c = c };
    int ret = -1;

    if (fill_prompt(t, &a.all, err) < 0) {
        ids_clear(&a.all);
        conversation_drop(&c->talk);
        return complain(t, err);
    }
    a.stream = token_stream_new(c->session->tokenizer, true);
    (void)lineedit_was_interrupted(); /* that was about something earlier */
    if (generate_answer(&a, t->turn++, err) == 0) {
        if (!a.said.cut)
            token_stream_end(a.stream, &a.said.text);
        (void)sampling_cut(&c->sampling, &a.said, true);
        ret = show(&a, err);
    }
    if (ret == 0 && a.interrupted && !a.said.text.len)
        conversation_drop(&c->talk);
    else if (ret == 0)
        conversation_add(&c->talk, "assistant", str_text(&a.said.text),
                         a.said.text.len);
    if (ret == 0)
        print_end(t, &a);
    token_stream_free(a.stream);
    str_clear(&a.said.text);
    ids_clear(&a.all);
    return ret;
}

/* ---- rank 0: commands ---- */

enum after { GO_ON, QUIT };

static int help(struct talking *t, const char *arg, enum after *after, struct err *err)
{
    (void)t;
    (void)arg;
    (void)after;
    (void)err;
    fputs("/reset        begin a new conversation; what /system says stays\n"
          "/system TEXT  tell the model who it is; without TEXT: what was told; -: "
          "nothing\n"
          "/save FILE    write the conversation, for --load and generate --chat\n"
          "/quit         end, as ^D does\n"
          "^C stops an answer.  A line that ends in \\ goes on in the next; lines "
          "between\n"
          "\"\"\" and \"\"\" are one message; one that begins with // begins with /.\n",
          stdout);
    return 0;
}

static int reset(struct talking *t, const char *arg, enum after *after, struct err *err)
{
    (void)arg;
    (void)after;
    (void)err;
    conversation_reset(&t->c->talk);
    return 0;
}

static int set_system(struct talking *t, const char *arg, enum after *after,
                      struct err *err)
{
    struct str text = { 0 };

    (void)after;
    (void)err;
    if (*arg)
        conversation_set_system(&t->c->talk, strcmp(arg, "-") ? arg : NULL);
    else if (conversation_system(&t->c->talk, &text))
        cmd_puts(str_text(&text));
    str_clear(&text);
    return 0;
}

static int save(struct talking *t, const char *arg, enum after *after, struct err *err)
{
    (void)after;
    if (!*arg)
        return err_set(err, ERR_INPUT, "/save needs the name of a file");
    if (!t->c->talk.n)
        return err_set(err, ERR_INPUT, "/save: there is no message yet");
    return conversation_save(&t->c->talk, arg, err);
}

static int quit(struct talking *t, const char *arg, enum after *after, struct err *err)
{
    (void)t;
    (void)arg;
    (void)err;
    *after = QUIT;
    return 0;
}

/* Runs the command LINE, which begins with a slash. */
static int run_command(struct talking *t, const char *line, enum after *after,
                       struct err *err)
{
    static const struct {
        const char *name;
        int (*run)(struct talking *t, const char *arg, enum after *after,
                   struct err *err);
    } commands[] = { { "/help", help },
                     { "/reset", reset },
                     { "/system", set_system },
                     { "/save", save },
                     { "/quit", quit } };
    size_t n = strcspn(line, " \t");
    const char *arg = line + n + strspn(line + n, " \t");
    char *end = xstrdup(arg);
    int ret = -1;

    for (size_t i = strlen(end); i && strchr(" \t\r", end[i - 1]);)
        end[--i] = '\0';
    err_set(err, ERR_INPUT, "%.*s is no command; /help lists them", (int)n, line);
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
        if (n == strlen(commands[i].name) && !strncmp(line, commands[i].name, n)) {
            *err = (struct err){ 0 };
            ret = commands[i].run(t, end, after, err);
        }
    free(end);
    return ret;
}

/* ---- rank 0: the person ---- */

/* What the person says. */
struct heard {
    struct str text;
    bool quoted; /* between """ and """, where a slash is a slash */
};

/* Appends a line to H.  False: the message goes on in the next line. */
static bool add_line(struct heard *h, const struct str *line, bool *block)
{
    struct str *text = &h->text;
    bool mark = line->len == 3 && !memcmp(line->s, "\"\"\"", 3);

    if (mark && (*block || !text->len)) {
        h->quoted = true;
        *block = !*block;
        return !*block;
    }
    if (text->len)
        str_addc(text, '\n');
    str_addn(text, str_text(line), line->len);
    if (*block || !line->len || line->s[line->len - 1] != '\\')
        return !*block;
    text->s[--text->len] = '\0';
    return false;
}

/* Reads a message or command of one or several lines. */
static int read_message(struct talking *t, struct heard *h, enum lineedit_event *event,
                        struct err *err)
{
    struct str line = { 0 };
    bool whole = false, block = false;
    int ret = 0;

    str_reset(&h->text);
    h->quoted = false;
    for (bool more = false; ret == 0 && !whole; more = true) {
        ret = lineedit_read(t->c->lines, more ? ". " : "> ", &line, event, err);
        if (ret == 0 && *event == LINEEDIT_LINE)
            whole = add_line(h, &line, &block);
        else if (ret == 0 && *event == LINEEDIT_END && h->text.len) {
            *event = LINEEDIT_LINE; /* the end of a pipe ends a message, too */
            whole = true;
        } else {
            break;
        }
    }
    str_clear(&line);
    return ret;
}

static int hear(struct talking *t, const struct heard *h, enum after *after,
                struct err *err)
{
    const char *text = h->text.s;
    size_t n = h->text.len, escape = !h->quoted && *text == '/';

    if (!str_is_utf8(text, n) || strlen(text) < n) {
        err_set(err, ERR_INPUT, "standard input: a message %s",
                strlen(text) < n ? "has a NUL character" : "is not UTF-8");
        return complain(t, err);
    }
    if (escape && text[1] != '/')
        return run_command(t, text, after, err) < 0 ? complain(t, err) : 0;
    conversation_add(&t->c->talk, "user", text + escape, n - escape);
    return take_turn(t, err);
}

static int converse(struct talking *t, struct err *err)
{
    struct heard h = { 0 };
    enum lineedit_event event = LINEEDIT_LINE;
    enum after after = GO_ON;
    int ret = 0;

    if (conversation_waits(&t->c->talk)) /* of --load */
        ret = take_turn(t, err);
    while (ret == 0 && after == GO_ON) {
        ret = read_message(t, &h, &event, err);
        if (ret < 0 || event == LINEEDIT_END)
            break;
        if (event == LINEEDIT_LINE && h.text.len > strspn(str_text(&h.text), " \t\r\n"))
            ret = hear(t, &h, &after, err);
    }
    str_clear(&h.text);
    return ret;
}

/* The file of earlier lines, which the caller frees; NULL: none. */
static char *history_dup(void)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");

    if (state && *state == '/') /* a relative one is not valid, by the specification */
        return str_dupf("%s/shardutils/chat-history", state);
    return home && *home ? str_dupf("%s/.local/state/shardutils/chat-history", home)
                         : NULL;
}

static int lead(struct talking *t, struct err *err)
{
    struct chat_session *c = t->c;
    const struct session *s = c->session;
    char *history = c->no_history ? NULL : history_dup(), *note;
    int ret;

    if (c->typed)
        lineedit_catch_interrupts();
    lineedit_open(&c->lines, history, &note);
    c->terminal = lineedit_is_terminal(c->lines);
    c->shown = isatty(STDOUT_FILENO);
    if (note && !s->opt.quiet)
        cmd_warn(s->cmd, "%s; nothing is remembered", note);
    if (c->terminal && !s->opt.quiet)
        printf("%s, %llu tokens.  /help tells the commands, ^D ends.\n",
               fs_basename(s->checkpoint->path), (unsigned long long)c->room);
    ret = converse(t, err);
    lineedit_close(c->lines);
    free(history);
    free(note);
    return ret;
}

/* ---- ranks ---- */

static struct program_options options_of(const struct chat_session *c)
{
    const struct session *s = c->session;

    return (struct program_options){
        .wanted = true,
        .deterministic = s->opt.same_bits,
        .rounded = s->opt.compute == COMPUTE_BF16,
        .keeps_logits = sampling_needs_logits(&c->sampling),
        .tail = sampling_draws(&c->sampling) || sampling_needs_logits(&c->sampling)
                    ? TAIL_SAMPLE
                    : TAIL_ARGMAX
    };
}

static int chat_rank(void *arg, struct comm *comm, struct err *err)
{
    struct chat_session *c = arg;
    const struct session *s = c->session;
    const struct program_options options = options_of(c);
    const size_t drafts = drafting_most(&c->drafting);
    struct engine_limits limits = { .tokens = CHUNK * (size_t)s->mesh.size[MESH_SP],
                                    .context = (size_t)c->room,
                                    .sequences = 1,
                                    .snapshots = serving_snapshots(1),
                                    .segments = 1,
                                    .running = drafts ? 1 + drafts : 0,
                                    .wanted = 1 + drafts,
                                    .drafts = drafts,
                                    .drafted = drafts };
    const struct scheduler_options how = { .grow = true,
                                           .limits = &limits,
                                           .gain = gain,
                                           .draft = drafts ? draft : NULL,
                                           .arg = c };
    struct runner r;
    struct talking t = { .c = c };
    int ret;

    if (limits.tokens > c->room)
        limits.tokens = (size_t)c->room;
    if (runner_open(&r, s->checkpoint, &s->mesh, &s->machine, comm, &options, &limits,
                    err) < 0)
        return -1;
    ret = drafting_start(&c->drafter, &c->drafting, s, &r, &limits,
                         options.tail == TAIL_SAMPLE, sampling_vocab(s), err);
    if (ret == 0)
        ret = drafting_report(s, &r, c->drafter, comm, err);
    if (ret == 0 && !r.program->causal)
        ret = err_set(err, ERR_INPUT, "family %s is an encoder and generates no text",
                      s->checkpoint->model->family);
    if (ret == 0) {
        if (comm->rank && c->typed)
            signal(SIGINT, SIG_IGN); /* it is about the answer, which rank 0 ends */
        ret = scheduler_open(&c->scheduler, &r, &how, err);
        if (c->drafter)
            drafter_try(c->drafter, c->scheduler, r.nstages);
        if (ret == 0)
            ret = comm->rank ? scheduler_follow(c->scheduler, err) : lead(&t, err);
        if (ret == 0)
            drafting_note(s, c->drafter, c->scheduler);
        ret = scheduler_close(c->scheduler, ret, err);
    }
    drafter_close(c->drafter);
    ret = runner_finish(&r, ret, err);
    runner_close(&r);
    return ret;
}

/* ---- the command ---- */

/* A conversation is one text of a decoder. */
static int check_model(struct chat_session *c, struct err *err)
{
    const struct session *s = c->session;
    const uint64_t most = c->cache_tokens ? (uint64_t)c->cache_tokens : ROOM;

    if (s->source)
        return err_set(err, ERR_INPUT,
                       "family %s has an encoder: chat is for decoders, and 'tp-run "
                       "generate' runs it",
                       s->checkpoint->model->family);
    if (s->mesh.size[MESH_DP] > 1)
        return err_set(err, ERR_USAGE,
                       "--dp %d: a conversation is one text, which replicas cannot "
                       "share",
                       s->mesh.size[MESH_DP]);
    c->room = s->context && s->context < most ? s->context : most;
    return 0;
}

/* On rank 0. */
static int prepare(struct chat_session *c, struct err *err)
{
    if (messages_open(&c->form, c->session, &c->options, err) < 0 ||
        messages_stop(&c->form, &c->session->stop, err) < 0)
        return -1;
    if (c->load && conversation_load(&c->talk, c->load, err) < 0)
        return -1;
    if (c->system && !str_is_utf8(c->system, strlen(c->system)))
        return err_set(err, ERR_USAGE, "--system: not UTF-8");
    if (c->system)
        conversation_set_system(&c->talk, c->system);
    return 0;
}

static int open_chat(struct chat_session *c, struct err *err)
{
    struct session *s = c->session;
    bool front = launcher_is_front(&s->launcher);
    struct program_options options;

    if (session_need_lm(s, err) < 0 || sampling_settle(&c->sampling, s, err) < 0 ||
        check_model(c, err) < 0 || drafting_open(&c->drafting, s, err) < 0)
        return -1;
    options = options_of(c);
    if (session_choose(s, &options, 1, err) < 0 ||
        launcher_agree(&s->launcher, front ? prepare(c, err) : 0, err) < 0)
        return -1;
    if (session_share_ids(s, &s->stop, err) < 0)
        return -1;
    sampling_begin(&c->sampling, s, &s->stop);
    return sampling_check_end(&c->sampling, NULL, err);
}

int chat_main(const char *program, int argc, char **argv)
{
    struct session_options opt = SESSION_DEFAULTS;
    struct session session = { 0 };
    struct chat_session c = { .session = &session,
                              .sampling = SAMPLING_DEFAULTS(UINT64_MAX) };
    const struct opt opts[] = {
        { OPT_STRING, '\0', "system", &c.system, "TEXT", "what the system says first",
          NULL, NULL },
        { OPT_STRING, '\0', "load", &c.load, "FILE", "continue the chat in FILE", NULL,
          NULL },
        { OPT_FLAG, '\0', "no-history", &c.no_history, NULL,
          "neither read nor write the file of typed lines", NULL, NULL },
        MESSAGES_OPTIONS(c.options),
        SAMPLING_OPTIONS(c.sampling, "most tokens of an answer (default: the model's)"),
        { OPT_COUNT, '\0', "cache-tokens", &c.cache_tokens, "N", NULL, NULL, NULL },
        DRAFTING_OPTIONS(c.drafting),
        SESSION_OPTIONS(opt),
        { .type = OPT_END },
    };
    const struct cmd cmd = { .name = "chat",
                             .program = program,
                             .own_page = true,
                             .synopsis = "[OPTION]... CHECKPOINT",
                             .summary = "Converse with a model",
                             .opts = opts,
                             .min_args = 1,
                             .max_args = 1,
                             .excess = "messages come from standard input" };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct termios before;
    struct err err = { 0 };
    int status;

    opt.no_choice = true;
    c.typed = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &before) == 0;
    if (sampling_check(&c.sampling, &err) < 0 ||
        session_open(&session, &cmd, &opt, operand[0], &err) < 0 ||
        open_chat(&c, &err) < 0)
        status = cmd_fail(&cmd, &err);
    else {
        session.machine.steps = c.room;
        session.launcher.interrupts = c.typed;
        status = session_run(&session, chat_rank, &c);
        /* a rank that was killed has left it as editing needs it */
        if (c.typed && session.mesh.nranks > 1 && !session.launcher.world)
            tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
    }
    conversation_clear(&c.talk);
    messages_close(&c.form);
    drafting_close(&c.drafting);
    sampling_clear(&c.sampling);
    session_close(&session);
    return status;
}
