/* cmd - options, help and diagnostics, the same in every program */
#include "cmd/cmd.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cmd/foreign.h"
#include "cmd/terminal.h"
#include "config.h"
#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

/* "tp-shard split", or "tp-shard" */
static void print_name(FILE *fp, const struct cmd *cmd)
{
    if (cmd->program)
        fprintf(fp, "%s ", cmd->program);
    fputs(cmd->name, fp);
}

static const char *program_name(const struct cmd *cmd)
{
    return cmd->program ? cmd->program : cmd->name;
}

/* ---- diagnostics ---- */

/* "program: text" on standard error; on a terminal an error begins in bold. */
static void print_diagnostic(const struct cmd *cmd, enum paint paint, const char *text)
{
    fprintf(stderr, "%s%s:%s %s\n", terminal_paint(stderr, paint), program_name(cmd),
            terminal_plain(stderr, paint), text);
}

/* The same as one line whatever names are in it. */
static void complain(const struct cmd *cmd, enum paint paint, const char *fmt,
                     va_list ap)
{
    struct str line = { 0 };
    char text[4096];

    vsnprintf(text, sizeof(text), fmt, ap);
    str_add_printable(&line, text);
    print_diagnostic(cmd, paint, str_text(&line));
    str_clear(&line);
}

int cmd_usage(const struct cmd *cmd, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    complain(cmd, PAINT_ERROR, fmt, ap);
    va_end(ap);
    fputs("Try '", stderr);
    print_name(stderr, cmd);
    fputs(" --help' for more.\n", stderr);
    return ERR_USAGE;
}

static struct {
    bool on;
    double begun; /* seconds */
} verbose;        /* of -v */

bool cmd_is_verbose(void)
{
    return verbose.on;
}

void cmd_hush(void)
{
    verbose.on = false;
}

void cmd_note(const struct cmd *cmd, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (verbose.on)
        complain(cmd, PAINT_NONE, fmt, ap);
    va_end(ap);
}

/* Under -v, what the command took. */
static void note_end(const struct cmd *cmd)
{
    struct rusage own, ranks;
    char size[32];
    long kib;

    if (!verbose.on || getrusage(RUSAGE_SELF, &own) < 0 ||
        getrusage(RUSAGE_CHILDREN, &ranks) < 0)
        return;
    kib = own.ru_maxrss > ranks.ru_maxrss ? own.ru_maxrss : ranks.ru_maxrss;
    cmd_note(cmd, "%.2f s, at most %s of memory in a process",
             clock_seconds() - verbose.begun, str_human(size, (uint64_t)kib << 10));
}

int cmd_fail(const struct cmd *cmd, const struct err *err)
{
    if (err->kind == ERR_USAGE)
        return cmd_usage(cmd, "%s", err->text);
    print_diagnostic(cmd, PAINT_ERROR, err->text);
    note_end(cmd);
    return err->kind == ERR_NONE ? ERR_SYSTEM : (int)err->kind;
}

void cmd_warn(const struct cmd *cmd, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    complain(cmd, PAINT_NONE, fmt, ap);
    va_end(ap);
}

void cmd_puts(const char *line)
{
    struct str shown = { 0 };

    str_add_printable(&shown, line);
    puts(str_text(&shown));
    str_clear(&shown);
}

static const char *signalled; /* what signals end */

static void say_signal(int sig)
{
    const char *words[] = { signalled, ": ended by signal ",
                            sig == SIGINT ? "2 (SIGINT)\n" : "15 (SIGTERM)\n" };

    for (int i = 0; i < 3; i++)
        if (write(STDERR_FILENO, words[i], strlen(words[i])) < 0)
            break;
    raise(sig); /* its handler is gone */
}

void cmd_say_signals(const char *program)
{
    static const int sigs[] = { SIGINT, SIGTERM };
    struct sigaction old,
        say = { .sa_handler = say_signal, .sa_flags = (int)SA_RESETHAND | SA_NODEFER };

    signalled = program;
    for (int i = 0; i < 2; i++)
        if (sigaction(sigs[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
            sigaction(sigs[i], &say, NULL);
}

void cmd_leave_signals(void)
{
    static const int sigs[] = { SIGINT, SIGTERM };
    struct sigaction old;

    for (int i = 0; i < 2; i++)
        if (sigaction(sigs[i], NULL, &old) == 0 && old.sa_handler == say_signal)
            signal(sigs[i], SIG_DFL);
}

int cmd_finish(const struct cmd *cmd, int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) {
        note_end(cmd);
        return status;
    }
    fprintf(stderr, "%s: standard output: %s\n", program_name(cmd),
            strerror(errno ? errno : EIO));
    return ERR_SYSTEM;
}

bool cmd_progress(bool quiet)
{
    return !quiet && isatty(STDERR_FILENO);
}

/* ---- help ---- */

static void print_option(const struct opt *o)
{
    char left[64];
    int n = snprintf(left, sizeof(left), "  %c%c%s --%s%s%s", o->short_name ? '-' : ' ',
                     o->short_name ? o->short_name : ' ', o->short_name ? "," : " ",
                     o->long_name, o->arg ? "=" : "", o->arg ? o->arg : "");

    if (n > 29)
        printf("%s\n%30s", left, "");
    else
        printf("%-30s", left);
    printf("%s\n", o->help);
}

static const struct opt verbose_option = { OPT_FLAG,  'v',
                                           "verbose", &verbose.on,
                                           NULL,      "say more on standard error",
                                           NULL,      NULL };
static const struct opt help_option = { OPT_FLAG,          'h',  "help", NULL, NULL,
                                        "print this help", NULL, NULL };
static const struct opt version_option = {
    OPT_FLAG, 'V', "version", NULL, NULL, "print the version and features", NULL, NULL
};

/* A terminal that has no more lines shows how many there are. */
static bool print_number(const struct cmd *cmd)
{
    enum {
        SCREEN = 24,
        OTHERS = 11 /* what is printed besides these options */,
        LINE = 75
    };
    int said = 0, more = 0, letters = 0;

    for (const struct opt *o = cmd->opts; o && o->type != OPT_END; o++) {
        said += o->help != NULL;
        more += !o->help;
        letters +=
            o->help
                ? 0
                : (int)(strlen(o->long_name) + 3 + (o->arg ? strlen(o->arg) + 1 : 0));
    }
    if (!isatty(STDOUT_FILENO) || OTHERS + said + letters / LINE < SCREEN)
        return false;
    printf("\nMore: %d options, which '--help | more' names and the page explains.\n",
           more);
    return true;
}

/* The options that the page alone explains, many to a line; false: there are none. */
static bool print_more(const struct cmd *cmd)
{
    int width = 0;

    if (print_number(cmd))
        return true;
    for (const struct opt *o = cmd->opts; o && o->type != OPT_END; o++) {
        int n = (int)(strlen(o->long_name) + 3 + (o->arg ? strlen(o->arg) + 1 : 0));

        if (o->help)
            continue;
        if (!width)
            fputs("\nMore, which the page explains:", stdout);
        if (!width || width + n > 79) {
            fputs("\n  +", stdout);
            width = 3;
        }
        printf(" --%s%s%s", o->long_name, o->arg ? "=" : "", o->arg ? o->arg : "");
        width += n;
    }
    if (width)
        putchar('\n');
    return width;
}

static void print_help(const struct cmd *cmd)
{
    bool more;

    fputs("Usage: ", stdout);
    print_name(stdout, cmd);
    printf(" %s\n%s.\n\n", cmd->synopsis, cmd->summary);
    for (const struct cmd_sub *s = cmd->subs; s && s->name; s++)
        if (s->summary)
            printf("  %-14s %s\n", s->name, s->summary);
    if (cmd->subs)
        putchar('\n');
    for (const struct opt *o = cmd->opts; o && o->type != OPT_END; o++)
        if (o->help)
            print_option(o);
    if (!cmd->subs)
        print_option(&verbose_option);
    print_option(&help_option);
    print_option(&version_option);
    more = print_more(cmd);
    if (cmd->subs)
        printf("'%s COMMAND --help' tells a command's options.", cmd->name);
    printf("%sSee %s%s%s(1).\n", more ? "" : "\n", program_name(cmd),
           cmd->own_page ? "-" : "", cmd->own_page ? cmd->name : "");
}

static int print_version(const struct cmd *cmd)
{
    printf("%s (shardutils) %s\nfeatures: %s\n", program_name(cmd), PACKAGE_VERSION,
           FEATURES);
    return cmd_finish(cmd, EXIT_SUCCESS);
}

/* ---- values ---- */

static const char *bad_value(const struct opt *o)
{
    switch (o->type) {
    case OPT_INT:
    case OPT_U64:
        return "a whole number from 0";
    case OPT_COUNT:
        return "a whole number from 1";
    case OPT_SIZE:
        return "a size such as 80GiB";
    case OPT_TOKENS:
        return "a whole number such as 4096 or 4k";
    case OPT_DOUBLE:
        return "a number";
    default:
        return "one of the choices";
    }
}

/* In capitals, too: 1F1B is 1f1b. */
static bool set_choice(const struct opt *o, const char *text)
{
    for (int i = 0; o->choices[i]; i++)
        if (!strcasecmp(o->choices[i], text)) {
            *(int *)o->value = i;
            return true;
        }
    return false;
}

/* "4096", or "4k" and "1M", which count in 1024s as contexts do. */
static bool parse_tokens(const char *text, uint64_t *out)
{
    size_t n = strlen(text);
    int shift = !n ? 0 : strchr("kK", text[n - 1]) ? 10 : text[n - 1] == 'M' ? 20 : 0;
    char *number = xstrndup(text, n - (shift > 0));
    uint64_t value = 0;
    bool ok = str_u64(number, &value) && value <= UINT64_MAX >> shift;

    free(number);
    if (ok)
        *out = value << shift;
    return ok;
}

static const char ***lists; /* one for each option that was given as a list */
static size_t nlists;

/* Lists last as long as the program, so that no way out of a command has to release
 * them; the table keeps them in reach of leak checkers. */
static void add_word(struct opt_list *list, const char *word)
{
    size_t at = 0;

    while (at < nlists && lists[at] != list->v)
        at++;
    if (at == nlists)
        lists = xrealloc(lists, sizeof(*lists) * ++nlists);
    list->v = xrealloc(list->v, sizeof(*list->v) * (list->n + 1));
    list->v[list->n++] = word;
    lists[at] = list->v;
}

static bool set_value(const struct opt *o, const char *text)
{
    int n;

    switch (o->type) {
    case OPT_FLAG:
        *(bool *)o->value = true;
        return true;
    case OPT_RANK:
        *(const char **)o->value = text ? text : o->choices[0];
        return true;
    case OPT_STRING:
        *(const char **)o->value = text;
        return true;
    case OPT_LIST:
        add_word(o->value, text);
        return true;
    case OPT_INT:
    case OPT_COUNT:
        if (!str_int(text, &n) || n < (o->type == OPT_COUNT))
            return false;
        *(int *)o->value = n;
        return true;
    case OPT_U64:
        return str_u64(text, o->value);
    case OPT_SIZE:
        return str_size(text, o->value);
    case OPT_TOKENS:
        return parse_tokens(text, o->value);
    case OPT_DOUBLE:
        return str_double(text, o->value);
    case OPT_CHOICE:
        return set_choice(o, text);
    case OPT_END:
        break;
    }
    return false;
}

static void refuse_value(const struct cmd *cmd, const struct opt *o, const char *text)
{
    if (o->type == OPT_CHOICE) {
        struct str all = { 0 };

        for (int i = 0; o->choices[i]; i++)
            str_addf(&all, "%s%s", i ? ", " : "", o->choices[i]);
        cmd_usage(cmd, "--%s: '%s' is none of %s", o->long_name, text, str_text(&all));
        str_clear(&all);
    } else if ((o->type == OPT_INT || o->type == OPT_COUNT) &&
               !text[strspn(text, "0123456789")] && str_double(text, &(double){ 0 }) &&
               strtod(text, NULL) > INT_MAX) {
        cmd_usage(cmd, "--%s: '%s' is more than %d", o->long_name, text, INT_MAX);
    } else {
        cmd_usage(cmd, "--%s: '%s' is not %s", o->long_name, text, bad_value(o));
    }
}

/* ---- parsing ---- */

static _Noreturn void end_with(int status)
{
    exit(status);
}

/* Whichever of *BEST (or NULL) and CANDIDATE is nearer to WORD; a candidate counts when
 * at most a third of WORD's letters need to change. */
static void nearer(const char **best, const char *word, const char *candidate)
{
    size_t limit = (strlen(word) + 2) / 3 + 1;

    if (*best)
        limit = str_distance(word, *best);
    if (str_distance(word, candidate) < limit)
        *best = candidate;
}

static void answer(const struct cmd *cmd, const struct opt *o)
{
    if (o == &help_option) {
        print_help(cmd);
        end_with(cmd_finish(cmd, EXIT_SUCCESS));
    } else if (o == &version_option) {
        end_with(print_version(cmd));
    }
}

static const struct opt *find_own(const struct cmd *cmd, const char *name, size_t len)
{
    const struct opt *own[] = { &verbose_option, &help_option, &version_option };

    for (const struct opt *o = cmd->opts; o && o->type != OPT_END; o++)
        if (foreign_same(o->long_name, name, len))
            return o;
    for (int i = 0; i < 3; i++)
        if (foreign_same(own[i]->long_name, name, len))
            return own[i];
    return NULL;
}

static const struct opt *find_short(const struct cmd *cmd, char c)
{
    for (const struct opt *o = cmd->opts; o && o->type != OPT_END; o++)
        if (o->short_name == c)
            return o;
    return c == 'h'   ? &help_option
           : c == 'V' ? &version_option
           : c == 'v' ? &verbose_option
                      : NULL;
}

enum { MOST_NAMED = 6 }; /* options in one message */

/* The options that begin with NAME, in *LIST; how many they are. */
static int named_by(struct str *list, const struct cmd *cmd, const char *name,
                    size_t len)
{
    int n = 0;

    for (const struct opt *o = cmd->opts; o && o->type != OPT_END; o++)
        if (strlen(o->long_name) > len && foreign_same_start(o->long_name, name, len) &&
            ++n <= MOST_NAMED)
            str_addf(list, "%s--%s", n > 1 ? ", " : "", o->long_name);
    if (n > MOST_NAMED)
        str_add(list, ", ...");
    return n;
}

/* Our option that others give a name like NAME, or NULL. */
static const char *nearest(const struct cmd *cmd, const char *name)
{
    const char *best = NULL, *theirs = NULL, *ours = NULL;

    for (const struct opt *o = cmd->opts; o && o->type != OPT_END; o++)
        nearer(&best, name, o->long_name);
    nearer(&best, name, verbose_option.long_name);
    nearer(&best, name, help_option.long_name);
    nearer(&best, name, version_option.long_name);
    for (size_t i = 0; !best && i < foreign_count; i++) {
        const struct foreign *f = &foreign_table[i];
        const char *before = theirs;

        if (!f->option || !foreign_counts(f, cmd))
            continue;
        nearer(&theirs, name, f->name);
        if (theirs != before)
            ours = f->option;
    }
    return best ? best : ours;
}

static _Noreturn void refuse_unknown(const struct cmd *cmd, const char *word,
                                     size_t len)
{
    struct str list = { 0 };
    char *name = xstrndup(word, len);
    int n = named_by(&list, cmd, word, len);
    const char *best = n ? NULL : nearest(cmd, name);

    if (n > 1)
        cmd_usage(cmd, "unknown option '--%s'; it begins %s", name, str_text(&list));
    else if (n)
        cmd_usage(cmd, "unknown option '--%s'; did you mean '%s'?", name,
                  str_text(&list));
    else if (best)
        cmd_usage(cmd, "unknown option '--%s'; did you mean '--%s'?", name, best);
    else
        cmd_usage(cmd, "unknown option '--%s'", name);
    str_clear(&list);
    free(name);
    end_with(ERR_USAGE);
}

/* The option called NAME, here or, *AS then, elsewhere; ends the program where there is
 * none. */
static const struct opt *find_long(const struct cmd *cmd, const char *hyphens,
                                   const char *name, size_t len,
                                   const struct foreign **as)
{
    const struct opt *own = find_own(cmd, name, len);

    *as = own ? NULL : foreign_find(cmd, name, len);
    if (len == 1 && hyphens[1])
        *as = NULL; /* theirs is a letter after one hyphen */
    if (own)
        return own;
    if (!*as)
        refuse_unknown(cmd, name, len);
    if ((*as)->hint)
        end_with(cmd_usage(cmd, "%s%.*s: %s", hyphens, (int)len, name, (*as)->hint));
    return find_own(cmd, (*as)->option, strlen((*as)->option));
}

static _Noreturn void print_choices(const struct cmd *cmd, const char *name)
{
    const struct foreign *as;
    const struct opt *o = find_long(cmd, "--", name, strlen(name), &as);

    for (int i = 0; o->type != OPT_RANK && o->choices && o->choices[i]; i++)
        puts(o->choices[i]);
    end_with(cmd_finish(cmd, EXIT_SUCCESS));
}

static void apply(const struct cmd *cmd, const struct opt *o, const char *text)
{
    answer(cmd, o);
    if (!set_value(o, text)) {
        refuse_value(cmd, o, text);
        end_with(ERR_USAGE);
    }
    if (o->given)
        *o->given = true;
}

/* Is WORD, which may be NULL, a rank: "16", or "16:NAMES"? */
static bool is_rank(const char *word)
{
    size_t n = word ? strspn(word, "0123456789") : 0;

    return n && (!word[n] || word[n] == ':');
}

/* Is WORD, which may be NULL, what others write after a flag: True or False? */
static bool is_bool(const char *word)
{
    return word && (!strcasecmp(word, "true") || !strcasecmp(word, "false"));
}

/* Under -v, before it, what an option is called here. */
static void note_foreign(const struct cmd *cmd, const struct foreign *as)
{
    if (as)
        cmd_note(cmd, "--%s is --%s", as->name, as->option);
}

/* A flag of others, with the value FIXED of ours or none: "--fp16", "--fp16 True". */
static int parse_foreign_flag(const struct cmd *cmd, const struct opt *o, char **argv,
                              int i, const char *value, const char *fixed)
{
    const char *word = value ? value : argv[i + 1];

    if (value && !is_bool(value))
        end_with(cmd_usage(cmd, "%s: '%s' is not True or False", argv[i], value));
    if (!is_bool(word) || !strcasecmp(word, "true"))
        apply(cmd, o, fixed);
    return i + (!value && is_bool(word));
}

/* Parse the long option at argv[i], whose hyphens end before WORD; returns the index of
 * the last word used. */
static int parse_long(const struct cmd *cmd, int argc, char **argv, int i,
                      const char *word)
{
    size_t len = strcspn(word, "=");
    const char *value = word[len] ? word + len + 1 : NULL;
    const struct foreign *as;
    const struct opt *o =
        find_long(cmd, word - argv[i] > 1 ? "--" : "-", word, len, &as);

    if (o == &help_option && value)
        print_choices(cmd, value);
    if (as && (as->fixed || o->type == OPT_FLAG))
        return parse_foreign_flag(cmd, o, argv, i, value, as->fixed);
    if (o->type == OPT_FLAG) {
        if (value)
            end_with(cmd_usage(cmd, "--%s takes no value", o->long_name));
    } else if (!value && o->type == OPT_RANK &&
               !is_rank(i + 1 < argc ? argv[i + 1] : NULL)) {
        /* the usual rank */
    } else if (!value && i + 1 < argc) {
        value = argv[++i];
    } else if (!value) {
        end_with(cmd_usage(cmd, "--%s needs a value", o->long_name));
    }
    apply(cmd, o, as && value ? foreign_value(as, value) : value);
    note_foreign(cmd, as);
    return i;
}

/* A negative number is an operand, unless there is an option such as -1. */
static bool is_option(const struct cmd *cmd, const char *word)
{
    double ignored;

    if (word[0] != '-' || !word[1])
        return false;
    return find_short(cmd, word[1]) ||
           !(str_double(word, &ignored) || !strcmp(word, "-inf"));
}

/* Do the letters of WORD, "-ab", read as short options? */
static bool are_short(const struct cmd *cmd, const char *word)
{
    for (const char *p = word + 1; *p; p++) {
        const struct opt *o = find_short(cmd, *p);

        if (!o)
            return false;
        if (o->type != OPT_FLAG)
            break;
    }
    return true;
}

/* Is WORD, "-tp", what elsewhere is written with one hyphen: a long name, or one of
 * other programs, that does not read as short options? */
static bool is_long(const struct cmd *cmd, const char *word)
{
    size_t len = strcspn(word + 1, "=");

    return !are_short(cmd, word) && ((len > 1 && find_own(cmd, word + 1, len)) ||
                                     foreign_find(cmd, word + 1, len));
}

static int parse_short(const struct cmd *cmd, int argc, char **argv, int i)
{
    if (is_long(cmd, argv[i]))
        return parse_long(cmd, argc, argv, i, argv[i] + 1);
    for (const char *p = argv[i] + 1; *p; p++) {
        const struct opt *o = find_short(cmd, *p);

        if (!o) {
            end_with(cmd_usage(cmd, "unknown option '-%c'", *p));
        } else if (o->type == OPT_FLAG) {
            apply(cmd, o, NULL);
        } else if (p[1]) {
            apply(cmd, o, p + 1);
            break;
        } else if (i + 1 < argc) {
            apply(cmd, o, argv[++i]);
            break;
        } else {
            end_with(cmd_usage(cmd, "-%c needs a value", *p));
        }
    }
    return i;
}

/* The operands that the synopsis names after the first N are missing. */
static int refuse_missing(const struct cmd *cmd, int n)
{
    struct str names = { 0 };
    bool of_option = false;
    int at = 0, missing = 0, status;

    for (const char *p = cmd->synopsis; *p; p += strspn(p, " ")) {
        size_t len = strcspn(p, " "), name = strcspn(p, " .");
        bool option = *p == '-', optional = *p == '[' || p[len - 1] == ']';

        if (!option && !optional && !of_option && at++ >= n) {
            str_addf(&names, "%s%.*s", missing ? " " : "", (int)name, p);
            missing++;
        }
        of_option = option && !memchr(p, '=', len);
        p += len;
    }
    status = missing > 1 ? cmd_usage(cmd, "operands are missing: %s", str_text(&names))
             : missing   ? cmd_usage(cmd, "an operand is missing: %s", str_text(&names))
                         : cmd_usage(cmd, "an operand is missing");
    str_clear(&names);
    return status;
}

/* More operands than CMD takes.  Perhaps GROUPED, if it is not NULL, was meant for a
 * long option, whose value is the operand then. */
static int refuse_excess(const struct cmd *cmd, const char *operand,
                         const char *grouped)
{
    if (grouped)
        return cmd_usage(cmd, "unexpected operand '%s'; '%s' is -%c %s: write -%s",
                         operand, grouped, grouped[1], grouped + 2, grouped);
    return cmd_usage(cmd, "unexpected operand '%s'%s%s", operand,
                     cmd->excess ? "; " : "", cmd->excess ? cmd->excess : "");
}

char **cmd_parse(const struct cmd *cmd, int argc, char **argv)
{
    const char *grouped = NULL; /* "-pp", read as -p with the value p */
    int n = 0, i;

    verbose.begun = clock_seconds();
    for (i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--")) {
            if (cmd->stop_at_command)
                break;
            for (i++; i < argc; i++)
                argv[n++] = argv[i];
            break;
        }
        if (!strncmp(argv[i], "--", 2))
            i = parse_long(cmd, argc, argv, i, argv[i] + 2);
        else if (is_option(cmd, argv[i])) {
            if (argv[i][1] && argv[i][2] && are_short(cmd, argv[i]) &&
                find_own(cmd, argv[i] + 1, strlen(argv[i] + 1)))
                grouped = argv[i];
            i = parse_short(cmd, argc, argv, i);
        } else
            argv[n++] = argv[i];
    }
    if (n < cmd->min_args)
        end_with(refuse_missing(cmd, n));
    if (cmd->max_args >= 0 && n > cmd->max_args)
        end_with(refuse_excess(cmd, argv[cmd->max_args], grouped));
    /* words that are used up, so that the next "--" is the command's */
    for (int used = n; used < i && used < argc; used++)
        argv[used] = NULL;
    return argv;
}

char **cmd_command(const struct cmd *cmd, int argc, char **argv)
{
    (void)cmd;
    for (int i = 1; i < argc; i++)
        if (argv[i] && !strcmp(argv[i], "--"))
            return argv[i + 1] ? argv + i + 1 : NULL;
    return NULL;
}

static int refuse_command(const struct cmd *cmd, const char *name)
{
    const char *best = foreign_command(cmd, name);

    for (const struct cmd_sub *s = best ? NULL : cmd->subs; s && s->name; s++)
        nearer(&best, name, s->name);
    return best ? cmd_usage(cmd, "unknown command '%s'; did you mean '%s'?", name, best)
                : cmd_usage(cmd, "unknown command '%s'", name);
}

/* "help train" is "train --help". */
static int help_of(const struct cmd *cmd, char *name)
{
    char help[] = "--help", *words[] = { name, help, NULL };

    for (const struct cmd_sub *s = cmd->subs; name && s->name; s++)
        if (!strcmp(s->name, name))
            return s->run(cmd->name, 2, words);
    if (name)
        return refuse_command(cmd, name);
    print_help(cmd);
    return cmd_finish(cmd, EXIT_SUCCESS);
}

int cmd_dispatch(const struct cmd *cmd, int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); /* so that a write beyond the limit says EFBIG */
    if (argc < 2)
        return cmd_usage(cmd, "a command is missing");
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
        answer(cmd, &help_option);
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))
        answer(cmd, &version_option);
    for (const struct cmd_sub *s = cmd->subs; s->name; s++)
        if (!strcmp(s->name, argv[1]))
            return s->run(cmd->name, argc - 1, argv + 1);
    if (!strcmp(argv[1], "help"))
        return help_of(cmd, argv[2]);
    if (argv[1][0] == '-')
        return cmd_usage(cmd, "unknown option '%s'", argv[1]);
    if (cmd->usual && access(argv[1], F_OK) == 0)
        return cmd_usage(cmd, "a command is missing; did you mean '%s %s %s'?",
                         cmd->name, cmd->usual, argv[1]);
    return refuse_command(cmd, argv[1]);
}
