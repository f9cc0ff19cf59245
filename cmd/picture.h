/* picture - what the programs that draw share: the names of pictures, and the command
 * that a page shows */
#ifndef CMD_PICTURE_H
#define CMD_PICTURE_H

#include "cmd/cmd.h"
#include "lib/plot/html.h"

/* The formats, for messages. */
#define PICTURE_NAMES ".svg, .png, .pdf or .html"

/* 0 when PATH's extension is that of a picture or a page; else a usage error that names
 * OPTION ("--plot"), and its status. */
int picture_check(const struct cmd *cmd, const char *option, const char *path);

/* PROGRAM's command line as a shell reads it, until the next call.  Call it before
 * cmd_parse, which reorders ARGV. */
const char *picture_command(const char *program, int argc, char **argv);

/* The last part of PATH, for titles, slashes behind it left out; the caller frees it.
 */
char *picture_name_dup(const char *path);

/* Ends PAGE with COMMAND, writes it to PATH and releases it, on failure too. */
MUST_CHECK int picture_write_page(struct html *page, const char *path,
                                  const char *command, struct err *err);
/* Writes F to PATH: as a picture, or as a page that shows it and COMMAND. */
MUST_CHECK int picture_write(const struct figure *f, const char *path,
                             const char *title, const char *command, struct err *err);

#endif
