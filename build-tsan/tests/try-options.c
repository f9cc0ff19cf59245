/* try-options - a program with every kind of option, to be parsed by tests
 *
 * Prints what it was given, one a line: NAME VALUE, then operands and the command. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmd/cmd.h"

static int print_all(const char *program, int argc, char **argv)
{
    static const char *const colours[] = { "red", "green", NULL };
    bool flag = false, other = false, given = false;
    const char *text = "";
    struct opt_list list = { 0 };
    int n = -1, colour = 0;
    uint64_t seed = 0, size = 0;
    double rate = 0;
    const struct opt opts[] = {
        { OPT_FLAG, 'a', "flag", &flag, NULL, "a flag", NULL, NULL },
        { OPT_FLAG, 'b', "other", &other, NULL, "another", NULL, NULL },
        { OPT_STRING, 'o', "text", &text, "TEXT", "any text", NULL, NULL },
        { OPT_LIST, 'l', "list", &list, "TEXT", "any number of texts", NULL, NULL },
        { OPT_INT, 'n', "count", &n, "N", "a number", NULL, &given },
        { OPT_U64, '\0', "seed", &seed, "S", "a large number", NULL, NULL },
        { OPT_SIZE, '\0', "size", &size, "SIZE", "bytes", NULL, NULL },
        { OPT_DOUBLE, '\0', "rate", &rate, "X", NULL, NULL, NULL },
        { OPT_CHOICE, '\0', "colour", &colour, "COLOUR", "red or green", colours,
          NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "print",
        .program = program,
        .synopsis = "[OPTION]... OPERAND... [-- COMMAND]",
        .summary = "Print what was given",
        .opts = opts,
        .min_args = 1,
        .max_args = 3,
        .stop_at_command = true,
    };
    char **operand = cmd_parse(&cmd, argc, argv);
    char **command = cmd_command(&cmd, argc, argv);

    printf("flags %d%d\ntext %s\n", flag, other, text);
    for (size_t i = 0; i < list.n; i++)
        printf("list %s\n", list.v[i]);
    if (given)
        printf("count %d\n", n);
    printf("seed %" PRIu64 "\nsize %" PRIu64 "\nrate %g\ncolour %s\n", seed, size, rate,
           colours[colour]);
    for (; *operand; operand++)
        printf("operand %s\n", *operand);
    for (; command && *command; command++)
        printf("command %s\n", *command);
    free(list.v);
    return cmd_finish(&cmd, EXIT_SUCCESS);
}

static int print_operands(const char *program, int argc, char **argv)
{
    const struct cmd cmd = {
        .name = "operands",
        .program = program,
        .synopsis = "[OPERAND]...",
        .summary = "Print the operands",
        .max_args = -1,
    };

    for (char **operand = cmd_parse(&cmd, argc, argv); *operand; operand++)
        printf("operand %s\n", *operand);
    return cmd_finish(&cmd, EXIT_SUCCESS);
}

int main(int argc, char **argv)
{
    static const struct cmd_sub subs[] = {
        { "print", "print what was given", print_all },
        { "operands", "print the operands", print_operands },
        { NULL, NULL, NULL },
    };
    const struct cmd cmd = {
        .name = "try-options",
        .synopsis = "COMMAND [OPTION]... [OPERAND]...",
        .summary = "Parse options",
        .subs = subs,
    };

    return cmd_dispatch(&cmd, argc, argv);
}
