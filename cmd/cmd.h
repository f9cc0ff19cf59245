/* cmd - options, help and diagnostics, the same in every program
 *
 * A program (or one of its subcommands) is a `struct cmd`: one table that parses,
 * prints --help and is what the manual page is checked against.  -v, -h and -V are
 * added to every table.  Options and operands may be mixed; "--" ends options. */
#ifndef CMD_CMD_H
#define CMD_CMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

enum opt_type {
    OPT_END,
    OPT_FLAG,   /* bool *: set to true */
    OPT_STRING, /* const char ** */
    OPT_LIST,   /* struct opt_list *: may be given again, or as given once */
    OPT_INT,    /* int *, at least 0 */
    OPT_COUNT,  /* int *, at least 1 */
    OPT_U64,    /* uint64_t * */
    OPT_SIZE,   /* uint64_t *: bytes with a suffix (str_size) */
    OPT_DOUBLE, /* double *, finite */
    OPT_CHOICE, /* int *: index into .choices */
    OPT_TOKENS, /* uint64_t *: a number, or one of 1024s: 4k */
    OPT_RANK,   /* const char **: follows "=", or is the next word where that is a
                   number, alone or before a colon; choices[0] where there is none */
};

struct opt_list {
    const char **v; /* lasts as long as the program */
    size_t n;
};

struct opt {
    enum opt_type type;
    char short_name; /* '\0' for none */
    const char *long_name;
    void *value;      /* untouched unless given */
    const char *arg;  /* its name in --help, "N"; NULL for flags */
    const char *help; /* one line, lower case, no full stop; NULL: named in
                         --help, explained in the page alone */
    const char *const
        *choices; /* OPT_CHOICE: NULL-terminated words; OPT_STRING and
                     OPT_LIST: words that --help=OPTION suggests, or NULL */
    bool *given;  /* set to true when the option occurs; may be NULL */
};

/* A program with subcommands has .subs and no .opts; each subcommand has .run. */
struct cmd {
    const char *name;     /* "tp-shard", or "split" inside its .subs */
    const char *synopsis; /* after the name: "[OPTION]... CONFIG" */
    const char *summary;  /* one sentence, no full stop */
    const struct opt *opts;
    int min_args, max_args; /* operands; max_args -1 means any number */
    bool stop_at_command;   /* everything after the first "--" stays an operand list of
                               its own: see cmd_command */
    const struct cmd_sub *subs; /* ends with .name NULL */
    const char *program;        /* filled in for subcommands: "tp-shard" */
    bool own_page;      /* a subcommand whose page is PROGRAM-NAME(1), not PROGRAM(1) */
    const char *usual;  /* with .subs: the command that a model alone asks for */
    const char *excess; /* what to type instead of an operand too many, or NULL */
};

struct cmd_sub {
    const char *name;
    const char *summary; /* NULL: another name, which --help leaves out */
    int (*run)(const char *program, int argc,
               char **argv); /* argv[0] is the subcommand */
};

/* Run the subcommand argv[1] of CMD, or answer --help and --version, and return the
 * program's exit status. */
int cmd_dispatch(const struct cmd *cmd, int argc, char **argv);

/* Parse; returns the operands, NULL-terminated, borrowed from ARGV (reordered).
 * --help, --help=OPTION (the words that OPTION can be, a line each, as far as there is
 * a list) and --version are answered and end the program with 0, a usage error with 2
 * and two lines on standard error. */
char **cmd_parse(const struct cmd *cmd, int argc, char **argv);

/* With .stop_at_command: the words after "--" of the last cmd_parse on ARGV, or NULL
 * when there was none.  NULL-terminated. */
char **cmd_command(const struct cmd *cmd, int argc, char **argv);

/* A usage error found after parsing: two lines on standard error, returns 2. */
int cmd_usage(const struct cmd *cmd, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Print "program: text" and return the status that *err's kind means. */
MUST_CHECK int cmd_fail(const struct cmd *cmd, const struct err *err);
void cmd_warn(const struct cmd *cmd, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The same under -v alone. */
void cmd_note(const struct cmd *cmd, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Was -v given?  Another process of the job says what is to be said: from now on no. */
bool cmd_is_verbose(void);
void cmd_hush(void);
/* Print LINE and a line feed on standard output, what names in it hold escaped. */
void cmd_puts(const char *line);
/* From now on SIGINT and SIGTERM, unless ignored, say one line before they end PROGRAM
 * (a name that stays). */
void cmd_say_signals(const char *program);
/* Say nothing any more: who started this process tells. */
void cmd_leave_signals(void);
/* Flush standard output; returns STATUS, or 4 with a message when it cannot be
 * written.  Every successful path ends with it. */
int cmd_finish(const struct cmd *cmd, int status);

/* True for progress on standard error: a terminal, and not quiet. */
bool cmd_progress(bool quiet);

#endif
