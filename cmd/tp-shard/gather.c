/* gather - put together what several jobs made with --ranks */
#include <stdlib.h>

#include "cmd/tp-shard/tp-shard.h"
#include "lib/base/str.h"
#include "lib/reshard/partset.h"

int gather_main(const char *program, int argc, char **argv)
{
    bool force = false, quiet = false;
    const struct opt opts[] = {
        { OPT_FLAG, 'f', "force", &force, NULL, "replace an earlier output", NULL,
          NULL },
        { OPT_FLAG, 'q', "quiet", &quiet, NULL, "print nothing on success", NULL,
          NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "gather",
        .program = program,
        .synopsis = "[OPTION]... OUTPUT [PART]...",
        .summary = "Put together OUTPUT of what several jobs made with --ranks",
        .opts = opts,
        .min_args = 1,
        .max_args = -1,
    };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct partset_result r;
    struct err err = { 0 };
    char size[32];
    size_t n = 0;

    while (operand[1 + n])
        n++;
    if (partset_gather(&r, operand[0], operand + 1, n, force, &err) < 0)
        return cmd_fail(&cmd, &err);
    if (!r.done) {
        err_set(&err, ERR_INPUT, "%s: of %d files, %s are missing", operand[0], r.of,
                r.missing);
        return cmd_fail(&cmd, &err);
    }
    if (!quiet && !r.files)
        cmd_warn(&cmd, "%s: is there; no parts of it are left", operand[0]);
    else if (!quiet)
        cmd_warn(&cmd, "%s: %d files, %s", operand[0], r.files,
                 str_human(size, r.bytes));
    return cmd_finish(&cmd, EXIT_SUCCESS);
}
