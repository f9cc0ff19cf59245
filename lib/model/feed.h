/* feed - the named inputs of a model: numbers that a text brings besides its tokens
 *
 * Every model has the first six; "inputs" of a family adds others, or redefines one of
 * the six by its name: "NAME": [ROWS, COLUMNS, TYPE, { options }].  ROWS names a row
 * space (program/rows.h), COLUMNS is a shape, TYPE is i32 or f32.  One list serves
 * whoever reads inputs (JSON lines, safetensors, options), the engine and kernels. */
#ifndef LIB_MODEL_FEED_H
#define LIB_MODEL_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/dtype.h"
#include "lib/model/model.h"

enum { FEEDS_MOST = 16 };
enum feed {
    FEED_IDS,
    FEED_POSITIONS,
    FEED_TOKEN_TYPES,
    FEED_SOURCE, /* ids that an encoder reads */
    FEED_SOURCE_POSITIONS,
    FEED_EVERY, /* 0, 1, ...: all rows of a position table */
    FEED_OWN    /* the first of a family's own */
};

/* What an input has when a text does not bring it. */
enum feed_fill {
    FILL_ZERO,
    FILL_POSITION, /* the row's position */
    FILL_FIRST,    /* 1 for the first token, 0 for the others */
    FILL_BEFORE,   /* 1 for tokens before the first one with the id .separator */
    FILL_AFTER,    /* 1 for tokens beyond the one that follows it */
    FILL_CHOSEN,   /* 1 in the column of the adapter that the text chooses, else 0 */
    FILL_ALIKE     /* place of a token among those that have, in the input .of, the same
                      numbers in the columns .column: the distance from the first */
};

struct model_feed {
    const char *name;
    const char *rows; /* of its row space */
    enum dtype dtype; /* DTYPE_I32 or DTYPE_F32 */
    struct axis axis; /* its columns */
    bool given;       /* a text may bring it; false: the engine makes it */
    bool needed;      /* a text must */
    bool boxes;       /* of 4 columns: 0 and 1 are at most 2 and 3 */
    uint64_t *below;  /* [columns]: numbers are below these; 0: any that is not
                         negative.  NULL: any */
    enum feed_fill fill;
    int32_t separator;
    int of, column[2];
};

/* M's inputs: *n of them, from FEED_IDS on. */
const struct model_feed *model_feeds(const struct model *m, int *n);
/* Index of the input called NAME[len], or -1. */
int model_feed_find(const struct model *m, const char *name, size_t len);

/* Has any built-in family an input called NAME? */
bool feeds_any_has(const char *name);

/* Adds the inputs by which a text chooses one of N adapters, of the tokens and of the
 * source, or gives them N columns.  ERR_NO: M has too many inputs. */
MUST_CHECK int feeds_offer(struct model *m, int n, struct err *err);
/* The input of these for the rows called ROWS; -1: there is none. */
int feeds_choice(const struct model *m, const char *rows);

/* For model.c: makes the list, which feeds_clear releases. */
MUST_CHECK int feeds_make(struct model *m, struct err *err);
void feeds_clear(struct model *m);

#endif
