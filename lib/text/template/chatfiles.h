/* chatfiles - the chat templates and special tokens of a model's directory */
#ifndef LIB_TEXT_TEMPLATE_CHATFILES_H
#define LIB_TEXT_TEMPLATE_CHATFILES_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"

struct template;

struct chatfiles_token {
    char *name, *text; /* "bos_token", "<s>" */
};

/* Everything is owned. */
struct chatfiles {
    struct template *usual;      /* NULL: there is only TOOLS */
    struct template *with_tools; /* NULL: USUAL serves */
    char *names;                 /* of all templates, for messages */
    struct chatfiles_token *special;
    size_t n_special;
    char **control; /* "chat_control_tokens" */
    size_t n_control;
    bool has_control;
};

/* As chat_open. */
MUST_CHECK int chatfiles_open(struct chatfiles **out, const char *dir,
                              const char *config, const char *choice, struct err *err);
void chatfiles_free(struct chatfiles *f);
/* The template for a chat with or without tools; NULL if there is none. */
const struct template *chatfiles_template(const struct chatfiles *f, bool tools,
                                          struct err *err);

#endif
