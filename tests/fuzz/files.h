/* files - the input of a fuzz target whose subject is a directory: several files, each
 * a line "NAME SIZE" and SIZE bytes */
#ifndef TESTS_FUZZ_FILES_H
#define TESTS_FUZZ_FILES_H

#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"

enum { FILES_NAME = 128 };

typedef void files_write(const char *dir, const char *name, const char *bytes,
                         size_t n);

/* Calls WRITE for each of the first MOST files of P[left] whose name stays in DIR. */
static inline void files_unpack(const char *dir, const char *p, size_t left, int most,
                                files_write *write)
{
    for (int f = 0; f < most && left; f++) {
        const char *end = memchr(p, '\n', left), *space;
        size_t line = end ? (size_t)(end - p) : 0, n;
        char name[FILES_NAME];

        space = line ? memchr(p, ' ', line) : NULL;
        if (!space || (size_t)(space - p) >= sizeof(name))
            return;
        memcpy(name, p, (size_t)(space - p));
        name[space - p] = '\0';
        n = (size_t)strtoull(space + 1, NULL, 10); /* ends at the line's end */
        p += line + 1;
        left -= line + 1;
        n = n < left ? n : left;
        if (fs_is_plain_name(name))
            write(dir, name, p, n);
        p += n;
        left -= n;
    }
}

#endif
