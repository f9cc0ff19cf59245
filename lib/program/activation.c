/* activation - names of the activation functions, and what their derivatives read */
#include "lib/program/activation.h"

#include <string.h>

#define ROW(id, formula, saved, loop, back, ...) [ACT_##id] = { __VA_ARGS__ },
const char *const activation_words[ACTIVATION_COUNT][ACTIVATION_WORDS + 1] = {
    ACTIVATIONS(ROW)
};
#undef ROW

int activation_find(const char *name, size_t len)
{
    for (int act = 0; act < ACTIVATION_COUNT; act++)
        for (const char *const *word = activation_words[act]; *word; word++)
            if (strlen(*word) == len && !memcmp(*word, name, len))
                return act;
    return -1;
}

bool activation_saves_result(enum activation act)
{
    enum { SOURCE, RESULT };
#define ROW(id, formula, saved, loop, back, ...) [ACT_##id] = (saved) == RESULT,
    static const bool result[ACTIVATION_COUNT] = { ACTIVATIONS(ROW) };
#undef ROW

    return result[act];
}
