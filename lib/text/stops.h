/* stops - texts at which a generated text ends */
#ifndef LIB_TEXT_STOPS_H
#define LIB_TEXT_STOPS_H

#include <stdbool.h>
#include <stddef.h>

/* `struct stops s = { 0 }` has none. */
struct stops {
    char **v; /* [n], none of them empty */
    size_t n, cap;
};

void stops_add(struct stops *s, const char *text);
void stops_clear(struct stops *s);
/* Replaces OUT by a copy of S. */
void stops_copy(struct stops *out, const struct stops *s);
/* The offset of the first stop in TEXT[len], of which the first DONE bytes were
 * searched before; LEN: there is none. */
size_t stops_find(const struct stops *s, const char *text, size_t len, size_t done);
/* How many of TEXT's last bytes may be the beginning of a stop, and are not to be shown
 * before it is known. */
size_t stops_held(const struct stops *s, const char *text, size_t len);

#endif
