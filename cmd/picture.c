/* picture - what the programs that draw share */
#include "cmd/picture.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/sweep/format/words.h"

int picture_check(const struct cmd *cmd, const char *option, const char *path)
{
    if (canvas_can_draw(path) || html_is_named(path))
        return 0;
    return cmd_usage(cmd, "%s: '%s' does not end in " PICTURE_NAMES, option, path);
}

const char *picture_command(const char *program, int argc, char **argv)
{
    static char *command; /* kept for all ways on which a command ends */
    char **words = xcalloc((size_t)argc + 2, sizeof(*words));
    struct str out = { 0 };
    int n = 0;

    words[n++] = (char *)program;
    for (int i = 0; i < argc; i++)
        words[n++] = argv[i];
    words_quote(&out, words);
    free(words);
    free(command);
    command = str_steal(&out);
    return command;
}

char *picture_name_dup(const char *path)
{
    size_t end = strlen(path), begin;

    while (end > 1 && path[end - 1] == '/')
        end--;
    begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    return str_dupf("%.*s", (int)(end - begin), path + begin);
}

int picture_write_page(struct html *page, const char *path, const char *command,
                       struct err *err)
{
    html_heading(page, "Command");
    html_lines(page, command);
    return html_write(page, path, err);
}

int picture_write(const struct figure *f, const char *path, const char *title,
                  const char *command, struct err *err)
{
    struct html page;

    if (!html_is_named(path))
        return figure_write(f, path, err);
    html_init(&page, title);
    if (html_figure(&page, f, err) < 0) {
        html_clear(&page);
        return -1;
    }
    return picture_write_page(&page, path, command, err);
}
