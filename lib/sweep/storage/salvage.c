/* salvage - what is whole of a damaged journal */
#define _GNU_SOURCE
#include "lib/sweep/storage/salvage.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/sweep/storage/replay.h"

enum { MAX_CONTRADICTIONS = 64 };

static const char BEGIN[] = "{\"op_code\":";

/* A line, or a part of a bad one. */
struct piece {
    const char *text;
    size_t n;
    int line; /* of the file */
    enum { WHOLE, LOST, MAKES_TRIAL } is;
    const char *why;          /* it is lost */
    int64_t op, study, trial; /* what it names, or -1; of a whole one */
};

struct salvage {
    const char *path;
    struct piece *piece; /* [n] */
    size_t n, cap;
    int64_t *study_of; /* [ntrials]: of each trial that was made */
    size_t ntrials, trials_cap;
    int64_t nstudies;
};

/* ---- lines to pieces ---- */

static void read_piece(struct salvage *s, struct piece *p)
{
    struct json_doc doc = { 0 };

    p->op = p->study = p->trial = -1;
    p->is = LOST;
    p->why = "not whole";
    if (replay_parse(&doc, s->path, p->line, p->text, p->n, NULL) == 0) {
        json_i64(json_get(doc.root, "op_code"), &p->op);
        json_i64(json_get(doc.root, "study_id"), &p->study);
        json_i64(json_get(doc.root, "trial_id"), &p->trial);
        p->why = "no operation of a journal";
        if (p->op >= 0 && p->op < REPLAY_OPS)
            p->is = WHOLE;
    }
    json_clear(&doc);
}

/* Where in the N bytes of TEXT another line begins, after its first byte; or N. */
static size_t next_begin(const char *text, size_t n)
{
    const char *at = n > 1 ? memmem(text + 1, n - 1, BEGIN, sizeof(BEGIN) - 1) : NULL;

    return at ? (size_t)(at - text) : n;
}

static void add_line(struct salvage *s, const char *text, size_t n, int line)
{
    struct piece p = { .text = text, .n = n, .line = line };

    if (!n)
        return;
    read_piece(s, &p);
    if (p.is == LOST)
        p.n = next_begin(text, n);
    s->piece = xgrow(s->piece, &s->cap, s->n + 1, sizeof(*s->piece));
    s->piece[s->n++] = p;
}

static void add_lines(struct salvage *s, const char *text, size_t n)
{
    const char *end = text + n;

    for (int line = 1; text < end; line++) {
        const char *feed = memchr(text, '\n', (size_t)(end - text));
        const char *stop = feed ? feed : end;

        while (text < stop) { /* once, unless the line is bad */
            add_line(s, text, (size_t)(stop - text), line);
            text += s->piece[s->n - 1].n;
        }
        text = stop + 1;
    }
}

/* ---- which of them made trials ---- */

static void make_trial(struct salvage *s, int64_t study)
{
    s->study_of =
        xgrow(s->study_of, &s->trials_cap, s->ntrials + 1, sizeof(*s->study_of));
    s->study_of[s->ntrials++] = study;
}

/* P stands for a trial, of the study that it still names, else of the one before. */
static void let_make(struct salvage *s, struct piece *p)
{
    static const char key[] = "\"study_id\":";
    const char *at = memmem(p->text, p->n, key, sizeof(key) - 1);
    size_t used = at ? (size_t)(at - p->text) + sizeof(key) - 1 : p->n;

    p->is = MAKES_TRIAL;
    p->study = s->ntrials ? s->study_of[s->ntrials - 1] : s->nstudies - 1;
    used += used < p->n && p->text[used] == ' ';
    if (used + 1 < p->n && p->text[used] >= '0' && p->text[used] <= '9' &&
        (p->text[used + 1] < '0' || p->text[used + 1] > '9'))
        p->study = p->text[used] - '0';
    make_trial(s, p->study);
}

static bool begins_trial(const struct piece *p)
{
    size_t at = sizeof(BEGIN) - 1;

    if (p->n < at + 3 || memcmp(p->text, BEGIN, at) != 0)
        return false;
    at += p->text[at] == ' ';
    return p->text[at] == '0' + REPLAY_CREATE_TRIAL && p->text[at + 1] == ',';
}

/* Trials up to TRIAL must have been made before piece AT: by bad lines. */
static void find_makers(struct salvage *s, size_t at, int64_t trial)
{
    size_t missing = (size_t)trial + 1 - s->ntrials, found = 0;

    for (size_t i = at; i-- > 0 && found < missing;)
        found += s->piece[i].is == LOST;
    if (found < missing) {
        s->piece[at].is = LOST;
        s->piece[at].why = "of a trial that is not there";
        return;
    }
    for (size_t i = at; i-- > 0 && missing;)
        if (s->piece[i].is == LOST) {
            let_make(s, &s->piece[i]);
            missing--;
        }
}

static int follow(struct salvage *s, struct err *err)
{
    for (size_t i = 0; i < s->n; i++) {
        struct piece *p = &s->piece[i];

        if (p->is == LOST && s->nstudies && begins_trial(p))
            let_make(s, p);
        if (p->is != WHOLE)
            continue;
        if (p->op == REPLAY_CREATE_STUDY)
            s->nstudies++;
        else if (p->study >= s->nstudies)
            return err_set(err, ERR_INPUT,
                           "%s: line %d: the line that made study %" PRId64
                           " is lost: nothing says what was optimized",
                           s->path, p->line, p->study);
        else if (p->op == REPLAY_CREATE_TRIAL)
            make_trial(s, p->study);
        else if (p->trial >= 0 && (uint64_t)p->trial >= s->ntrials)
            find_makers(s, i, p->trial);
    }
    return 0;
}

/* ---- the result ---- */

static void write_pieces(struct str *out, const struct salvage *s)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct piece *p = &s->piece[i];

        if (p->is == MAKES_TRIAL)
            str_addf(
                out,
                "{\"op_code\": %d, \"worker_id\": \"repair\", \"study_id\": %" PRId64
                ", \"datetime_start\": null}\n",
                REPLAY_CREATE_TRIAL, p->study);
        else if (p->is == WHOLE) {
            str_addn(out, p->text, p->n);
            str_addc(out, '\n');
        }
    }
}

/* Leave out the piece that became line LINE. */
static void drop(struct salvage *s, int line)
{
    for (size_t i = 0; i < s->n; i++) {
        struct piece *p = &s->piece[i];

        if (p->is == LOST || --line)
            continue;
        p->is = LOST;
        p->why = "contradicts lines before it";
        return;
    }
}

/* Replay TEXT, for study NAME or none; *bad is the line that it fails at, or 0. */
static int try_replay(int *bad, char ***names, size_t *n, const struct salvage *s,
                      const struct str *text, const char *name)
{
    struct study target = { .id = -1, .name = name ? xstrdup(name) : NULL };
    struct replay r = { .path = s->path, .target = name ? &target : NULL };
    struct err err = { 0 };
    size_t used;
    int ret = replay_lines(&r, str_text(text), text->len, &used, &err);

    *bad = ret < 0 ? r.line : 0;
    for (size_t i = 0; names && ret == 0 && i < r.nstudies; i++)
        if (!r.study[i].deleted) {
            *names = xrealloc(*names, (*n + 1) * sizeof(**names));
            (*names)[(*n)++] = xstrdup(r.study[i].name);
        }
    study_clear(&target);
    replay_clear(&r);
    return ret;
}

/* The first line of TEXT that makes no sense after those before it, in any study; 0
 * when all do. */
static int find_bad(const struct salvage *s, const struct str *text)
{
    char **names = NULL;
    size_t n = 0;
    int bad, ret = try_replay(&bad, &names, &n, s, text, NULL);

    for (size_t i = 0; i < n && ret == 0; i++)
        ret = try_replay(&bad, NULL, NULL, s, text, names[i]);
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
    return bad;
}

static void count_pieces(struct salvaged *count, const struct salvage *s,
                         void (*tell)(void *arg, int line, const char *what), void *arg)
{
    *count = (struct salvaged){ 0 };
    for (size_t i = 0; i < s->n; i++) {
        const struct piece *p = &s->piece[i];

        count->kept += p->is == WHOLE;
        count->dropped += p->is == LOST;
        count->made += p->is == MAKES_TRIAL;
        if (p->is == LOST)
            tell(arg, p->line, p->why);
        else if (p->is == MAKES_TRIAL)
            tell(arg, p->line, "not whole; it made a trial, which begins empty");
    }
}

int salvage_journal(struct str *out, struct salvaged *count, const char *path,
                    const char *text, size_t n,
                    void (*tell)(void *arg, int line, const char *what), void *arg,
                    struct err *err)
{
    struct salvage s = { .path = path };
    struct str lines = { 0 };
    int bad, tries = 0, ret = -1;

    add_lines(&s, text, n);
    if (follow(&s, err) < 0)
        goto out;
    if (!s.nstudies) {
        err_set(err, ERR_INPUT, "%s: not a journal, or nothing in it is whole", path);
        goto out;
    }
    for (;; tries++) {
        str_reset(&lines);
        write_pieces(&lines, &s);
        bad = find_bad(&s, &lines);
        if (!bad)
            break;
        if (tries == MAX_CONTRADICTIONS) {
            err_set(err, ERR_INPUT, "%s: more than %d lines contradict those before",
                    path, MAX_CONTRADICTIONS);
            goto out;
        }
        drop(&s, bad);
    }
    count_pieces(count, &s, tell, arg);
    str_addn(out, str_text(&lines), lines.len);
    ret = 0;
out:
    str_clear(&lines);
    free(s.piece);
    free(s.study_of);
    return ret;
}
