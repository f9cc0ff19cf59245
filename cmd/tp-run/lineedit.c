/* lineedit - lines that a person types, or that come from a pipe */
#define _GNU_SOURCE
#include "cmd/tp-run/lineedit.h"

#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"
#ifdef HAVE_LIBEDIT
#include <histedit.h>
#endif
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"

enum {
    REMEMBERED = 1000,      /* lines of the history */
    MOST_HISTORY = 1 << 22, /* bytes of its file that are read */
    MOST_LINE = 1 << 24     /* bytes of a line */
};

struct lineedit {
    bool typed;    /* standard input is a terminal */
    bool terminal; /* standard output is one, too */
    struct str in; /* bytes that were read, */
    size_t at;     /* those before this one were returned */
    bool ended;
    int log;    /* the history, open for appending; -1: none */
    int ending; /* the signal that ends the program once the terminal is restored */
#ifdef HAVE_LIBEDIT
    const char *prompt;
    EditLine *edit; /* NULL: the terminal's line discipline edits */
    HistoryW *history;
#endif
};

/* ---- signals ---- */

static volatile sig_atomic_t interrupted, resized, stopped, ended;

static void note_signal(int sig)
{
    if (sig == SIGINT)
        interrupted = 1;
    else if (sig == SIGWINCH)
        resized = 1;
    else if (sig == SIGTSTP)
        stopped = 1;
    else
        ended = sig;
}

static void catch (int sig, struct sigaction *was)
{
    /* ppoll returns all the same; a write to a slow terminal goes on */
    struct sigaction act = { .sa_handler = note_signal,
                             .sa_flags = SA_ONSTACK | SA_RESTART };

    sigemptyset(&act.sa_mask);
    if (sigaction(sig, NULL, was) == 0 && was->sa_handler != SIG_IGN)
        sigaction(sig, &act, NULL);
}

void lineedit_catch_interrupts(void)
{
    struct sigaction was;

    catch (SIGINT, &was);
}

bool lineedit_was_interrupted(void)
{
    bool was = interrupted;

    interrupted = 0;
    return was;
}

/* Those that a wait for input notices. */
static const int noticed[] = { SIGINT, SIGWINCH, SIGTSTP, SIGTERM, SIGHUP, SIGQUIT };
enum { NNOTICED = sizeof(noticed) / sizeof(*noticed) };

struct watched {
    struct sigaction was[NNOTICED];
    sigset_t mask; /* before */
};

/* Notices signals, but only inside wait_for_input. */
static void watch(struct watched *w)
{
    sigset_t set;

    sigemptyset(&set);
    for (int i = 0; i < NNOTICED; i++)
        sigaddset(&set, noticed[i]);
    sigprocmask(SIG_BLOCK, &set, &w->mask);
    for (int i = 0; i < NNOTICED; i++)
        catch (noticed[i], &w->was[i]);
}

static void unwatch(const struct watched *w)
{
    for (int i = 0; i < NNOTICED; i++)
        if (noticed[i] != SIGINT)
            sigaction(noticed[i], &w->was[i], NULL);
    sigprocmask(SIG_SETMASK, &w->mask, NULL);
}

/* Stops this process as ^Z asks, until it is continued. */
static void stop_here(void)
{
    struct sigaction was, act = { .sa_handler = SIG_DFL };
    sigset_t set;

    stopped = 0;
    sigaction(SIGTSTP, &act, &was);
    raise(SIGTSTP);
    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &set, NULL); /* here it stops */
    sigprocmask(SIG_BLOCK, &set, NULL);
    sigaction(SIGTSTP, &was, NULL);
}

/* Sets the terminal for editing, or back; draws the line again after the first. */
static void set_terminal(struct lineedit *l, bool editing)
{
#ifdef HAVE_LIBEDIT
    if (!l->edit)
        return;
    el_set(l->edit, EL_PREP_TERM, (int)editing);
    if (editing)
        el_set(l->edit, EL_REFRESH);
#else
    (void)l;
    (void)editing;
#endif
}

static void resize(struct lineedit *l)
{
    resized = 0;
#ifdef HAVE_LIBEDIT
    if (l->edit)
        el_resize(l->edit);
#else
    (void)l;
#endif
}

/* Waits until there is input: 1; 0 after ^C or a signal that ends the program. */
static int wait_for_input(struct lineedit *l)
{
    struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
    sigset_t open;

    sigprocmask(SIG_SETMASK, NULL, &open);
    for (int i = 0; i < NNOTICED; i++)
        sigdelset(&open, noticed[i]);
    for (;;) {
        int n = ppoll(&p, 1, NULL, &open);

        if (stopped) {
            set_terminal(l, false);
            stop_here();
            set_terminal(l, true);
        }
        if (resized)
            resize(l);
        if (interrupted || ended) {
            l->ending = ended;
            ended = 0;
            return 0;
        }
        if (n > 0 || (n < 0 && errno != EINTR))
            return 1; /* read(2) says what is wrong */
    }
}

/* ---- bytes ---- */

/* Adds bytes of standard input; *what is LINEEDIT_LINE if there are some. */
static int fill(struct lineedit *l, enum lineedit_event *what, struct err *err)
{
    char block[4096];
    ssize_t n;

    *what = LINEEDIT_INTERRUPT;
    if (!wait_for_input(l))
        return 0;
    do
        n = read(STDIN_FILENO, block, sizeof(block));
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_errno(err, "standard input");
    *what = n ? LINEEDIT_LINE : LINEEDIT_END;
    if (l->at == l->in.len) {
        str_reset(&l->in);
        l->at = 0;
    }
    str_addn(&l->in, block, (size_t)n);
    return 0;
}

/* A line that nothing edits. */
static int read_plain(struct lineedit *l, struct str *line, enum lineedit_event *event,
                      struct err *err)
{
    for (;;) {
        const char *from = str_text(&l->in) + l->at;
        const char *feed = memchr(from, '\n', l->in.len - l->at);
        size_t n = feed ? (size_t)(feed - from) : l->in.len - l->at;

        if (line->len + n > MOST_LINE)
            return err_set(err, ERR_INPUT, "standard input: a line above %d bytes",
                           (int)MOST_LINE);
        str_addn(line, from, n);
        l->at += n + (feed != NULL);
        *event = LINEEDIT_LINE;
        if (feed)
            return 0;
        if (!l->ended && fill(l, event, err) < 0)
            return -1;
        l->ended |= *event == LINEEDIT_END && !l->typed;
        if (*event == LINEEDIT_INTERRUPT) {
            str_reset(line);
            return 0;
        }
        if (l->ended || *event == LINEEDIT_END) {
            *event = line->len ? LINEEDIT_LINE : LINEEDIT_END;
            return 0;
        }
    }
}

#ifdef HAVE_LIBEDIT
/* ---- the history's file ---- */

static void keep(struct lineedit *l, const char *line)
{
    char *text = str_dupf("%s\n", line);

    /* one call, so that the lines of two programs do not mix */
    if (l->log >= 0 && write(l->log, text, strlen(text)) < 0) {
        close(l->log);
        l->log = -1;
    }
    free(text);
}

/* libedit's wide functions: this toolkit has a history_init of its own. */
static void remember(struct lineedit *l, const char *line)
{
    size_t n = strlen(line) + 1;
    wchar_t *wide = xcalloc(n, sizeof(*wide));
    HistEventW ev;

    if (mbstowcs(wide, line, n) != (size_t)-1)
        history_w(l->history, &ev, H_ENTER, wide);
    free(wide);
}

/* Reads the lines of TEXT, of which a very long file gets the last alone. */
static int remember_all(struct lineedit *l, const char *path, char *text,
                        struct err *err)
{
    size_t n = 0, skipped = 0;
    char *line = text;

    for (const char *p = text; (p = strchr(p, '\n')); p++)
        n++;
    for (; n - skipped > REMEMBERED; skipped++)
        line = strchr(line, '\n') + 1;
    if (n > 2 * REMEMBERED && output_write(path, line, strlen(line), false, err) < 0)
        return -1;
    for (char *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        remember(l, line);
    }
    return 0;
}

static int open_history(struct lineedit *l, const char *path, struct err *err)
{
    char *dir = fs_dirname_dup(path), *text = NULL;
    mode_t mask = umask(077);
    int fd = output_dir(dir, OUTPUT_MAKE, err), ret = fd < 0 ? -1 : 0;

    if (fd >= 0)
        close(fd);
    if (ret == 0)
        ret = fs_read_optional(&text, NULL, path, MOST_HISTORY, err);
    if (ret == 0 && text)
        ret = remember_all(l, path, text, err);
    if (ret == 0) {
        l->log = output_reopen(path, O_WRONLY | O_APPEND | O_CREAT, err);
        ret = l->log < 0 ? -1 : 0;
    }
    if (ret == 0 && fchmod(l->log, 0600) < 0) /* it may be older than this rule */
        ret = err_errno(err, "%s", path);
    umask(mask);
    free(text);
    free(dir);
    return ret;
}

/* ---- libedit ---- */

/* The next character typed, for libedit. */
static int next_char(EditLine *edit, wchar_t *out)
{
    struct lineedit *l;
    enum lineedit_event what;
    uint32_t cp;
    size_t n, have, want;

    el_get(edit, EL_CLIENTDATA, &l);
    for (;;) {
        const char *p = str_text(&l->in) + l->at;

        have = l->in.len - l->at;
        n = have ? str_utf8_decode(p, have, &cp) : 0;
        want = !have                       ? 1
               : (unsigned char)*p >= 0xF0 ? 4
               : (unsigned char)*p >= 0xE0 ? 3
                                           : 2;
        if (n || (have && have >= want))
            break;
        if (fill(l, &what, &(struct err){ 0 }) < 0)
            return -1;
        if (what != LINEEDIT_LINE)
            return what == LINEEDIT_END ? 0 : -1;
    }
    *out = n ? (wchar_t)cp : (wchar_t)0xFFFD;
    l->at += n ? n : str_utf8_bad(str_text(&l->in) + l->at, have);
    return 1;
}

static char *show_prompt(EditLine *edit)
{
    struct lineedit *l;

    el_get(edit, EL_CLIENTDATA, &l);
    return (char *)l->prompt;
}

/* libedit converts characters by the locale. */
static bool set_locale(void)
{
    return (setlocale(LC_CTYPE, "") && !strcmp(nl_langinfo(CODESET), "UTF-8")) ||
           setlocale(LC_CTYPE, "C.UTF-8");
}

static void open_edit(struct lineedit *l)
{
    HistEventW ev;

    if (!set_locale())
        return;
    l->history = history_winit();
    l->edit = l->history ? el_init("tp-run", stdin, stdout, stderr) : NULL;
    if (!l->edit)
        return;
    history_w(l->history, &ev, H_SETSIZE, (int)REMEMBERED);
    history_w(l->history, &ev, H_SETUNIQUE, 1);
    el_set(l->edit, EL_CLIENTDATA, l);
    el_set(l->edit, EL_EDITOR, "emacs");
    el_set(l->edit, EL_SIGNAL, 0);
    el_set(l->edit, EL_PROMPT, show_prompt);
    el_wset(l->edit, EL_HIST, history_w, l->history);
    el_set(l->edit, EL_GETCFN, next_char);
    el_source(l->edit, NULL); /* ~/.editrc */
}

static int read_edited(struct lineedit *l, const char *prompt, struct str *line,
                       enum lineedit_event *event, struct err *err)
{
    const char *text;
    int n = 0;

    l->prompt = prompt;
    el_set(l->edit, EL_PREP_TERM, 1); /* before the prompt, which invites to type */
    text = el_gets(l->edit, &n);
    if (text && n > 0) {
        str_addn(line, text, (size_t)n - (text[n - 1] == '\n'));
        *event = LINEEDIT_LINE;
    } else if (interrupted || l->ending) {
        *event = LINEEDIT_INTERRUPT;
        fputs("^C", stdout);
    } else if (n == 0) {
        *event = LINEEDIT_END;
    } else {
        return err_errno(err, "standard input");
    }
    if (!text)
        putchar('\n');
    if (line->len) {
        remember(l, str_text(line));
        keep(l, str_text(line));
    }
    return 0;
}
#endif

/* ---- opening and reading ---- */

void lineedit_open(struct lineedit **out, const char *path, char **note)
{
    struct lineedit *l = xcalloc(1, sizeof(*l));
    struct err err = { 0 };

    l->log = -1;
    l->typed = isatty(STDIN_FILENO);
    l->terminal = l->typed && isatty(STDOUT_FILENO);
    *note = NULL;
    *out = l;
#ifdef HAVE_LIBEDIT
    if (l->terminal)
        open_edit(l);
    if (l->edit && path && open_history(l, path, &err) < 0)
        *note = xstrdup(err.text);
#else
    (void)path;
    (void)err;
#endif
}

void lineedit_close(struct lineedit *l)
{
    if (!l)
        return;
#ifdef HAVE_LIBEDIT
    if (l->edit)
        el_end(l->edit);
    if (l->history)
        history_wend(l->history);
#endif
    if (l->log >= 0)
        close(l->log);
    str_clear(&l->in);
    free(l);
}

bool lineedit_is_terminal(const struct lineedit *l)
{
    return l->terminal;
}

int lineedit_read(struct lineedit *l, const char *prompt, struct str *line,
                  enum lineedit_event *event, struct err *err)
{
    struct watched w;
    int ret;

    str_reset(line);
    interrupted = 0; /* one that came after the answer's end is not about this line */
    if (l->typed)
        watch(&w);
#ifdef HAVE_LIBEDIT
    if (l->edit)
        ret = read_edited(l, prompt, line, event, err);
    else
#endif
    {
        if (l->typed)
            fputs(prompt, l->terminal ? stdout : stderr);
        fflush(stdout);
        ret = read_plain(l, line, event, err);
        if (ret == 0 && l->typed && *event != LINEEDIT_LINE)
            putc('\n', l->terminal ? stdout : stderr);
    }
    interrupted = 0;
    if (l->typed)
        unwatch(&w);
    if (l->ending)
        raise(l->ending);
    l->ending = 0;
    return ret;
}
