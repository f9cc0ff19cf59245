/* sum - write the checksums of a model's files and tensors */
#include <stdio.h>
#include <stdlib.h>

#include "cmd/tp-shard/tp-shard.h"
#include "lib/base/output.h"
#include "lib/base/str.h"
#include "lib/reshard/audit.h"

int sum_main(const char *program, int argc, char **argv)
{
    const char *output = NULL;
    const struct opt opts[] = {
        { OPT_STRING, 'o', "output", &output, "FILE", "write the list to FILE", NULL,
          NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "sum",
        .program = program,
        .synopsis = "[OPTION]... MODEL",
        .summary = "List the CRC-32 of each weight file and tensor of MODEL, for "
                   "verify --sums",
        .opts = opts,
        .min_args = 1,
        .max_args = 1,
    };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct str list = { 0 };
    struct err err = { 0 };
    struct source s;
    int ret;

    if (source_open(&s, operand[0], NULL, &err) < 0)
        return cmd_fail(&cmd, &err);
    ret = audit_sum(&list, &s, &err);
    if (ret == 0 && output)
        ret = output_write(output, str_text(&list), list.len, false, &err);
    else if (ret == 0)
        fputs(str_text(&list), stdout);
    source_clear(&s);
    str_clear(&list);
    return ret < 0 ? cmd_fail(&cmd, &err) : cmd_finish(&cmd, EXIT_SUCCESS);
}
