/* repair - save what is whole of a damaged journal */
#include <stdio.h>
#include <stdlib.h>

#include "cmd/hpo-sweep/hpo-sweep.h"
#include "lib/base/fs.h"
#include "lib/base/output.h"
#include "lib/sweep/storage/salvage.h"

struct told {
    const struct cmd *cmd;
    const char *path;
};

static void tell(void *arg, int line, const char *what)
{
    const struct told *to = arg;

    cmd_warn(to->cmd, "%s: line %d: %s", to->path, line, what);
}

static int repair(const struct cmd *cmd, const char *path, const char *out,
                  struct err *err)
{
    struct told to = { cmd, path };
    struct str lines = { 0 };
    struct salvaged count;
    char *text;
    size_t n;
    bool found;
    int ret = -1;

    if (fs_find(&found, out, err) < 0)
        return -1;
    if (found)
        return err_set(err, ERR_USAGE, "%s: is there already", out);
    if (fs_read_file(&text, &n, path, UINT64_MAX, err) < 0)
        return -1;
    if (salvage_journal(&lines, &count, path, text, n, tell, &to, err) == 0 &&
        output_write(out, lines.s, lines.len, true, err) == 0)
        ret = 0;
    if (ret == 0)
        printf("%zu lines kept, %zu left out, %zu trials made again\n", count.kept,
               count.dropped, count.made);
    str_clear(&lines);
    free(text);
    return ret;
}

int repair_main(const char *program, int argc, char **argv)
{
    static const struct opt opts[] = { { .type = OPT_END } };
    const struct cmd cmd = { .name = "repair",
                             .program = program,
                             .opts = opts,
                             .synopsis = "FILE OUT",
                             .min_args = 2,
                             .max_args = 2,
                             .summary = "Save what is whole of a damaged journal" };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct err err = { 0 };

    if (repair(&cmd, operand[0], operand[1], &err) < 0)
        return cmd_fail(&cmd, &err);
    return cmd_finish(&cmd, 0);
}
