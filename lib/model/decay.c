/* decay - which weights decay in training */
#include "lib/model/decay.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/model/family.h"

const char *const decay_names[DECAY_KINDS + 1] = {
    [DECAY_USUAL] = "usual", [DECAY_ALL] = "all", [DECAY_MATRICES] = "matrices"
};

static bool has_word(const char *name, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = name; (at = strstr(at, word)); at++)
        if (at[n] == '\0' || at[n] == '.')
            if (*word == '_' || at == name || at[-1] == '.')
                return true;
    return false;
}

bool decay_spares(const char *name)
{
    char *low = xstrdup(name);
    bool spared;

    for (char *c = low; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    spared = strstr(low, "bias") || strstr(low, "layernorm") ||
             strstr(low, "rmsnorm") || has_word(low, "norm") || has_word(low, "_norm");
    free(low);
    return spared;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The next call of the layer norm in TEXT, behind its bracket; NULL: there is none. */
static const char *find_norm(const char *text)
{
    static const char call[] = "layernorm(";
    const char *at = text;

    while ((at = strstr(at, call)) && at > text && is_word(at[-1]))
        at++;
    return at ? at + strlen(call) : NULL;
}

/* The tensors among the arguments at AT but the first, what is normed, do not decay. */
static void spare_arguments(bool *decays, const struct model *m, const char *at,
                            int layer)
{
    bool first = true;

    for (int depth = 0; *at && depth >= 0;) {
        size_t n = 0;

        while (is_word(at[n]))
            n++;
        depth += (*at == '(') - (*at == ')');
        first &= depth > 0 || *at != ',';
        if (n && !first) {
            long t = model_tensor_at(m, at, n, layer, -1);

            if (t >= 0)
                decays[t] = false;
        }
        at += n ? n : 1;
    }
}

bool *decay_new(const struct model *m, enum decay_kind kind)
{
    int n;
    const struct model_section *section = model_sections(m, &n);
    bool *decays = xcalloc(m->ntensors + 1, sizeof(*decays));

    for (size_t t = 0; t < m->ntensors; t++)
        decays[t] = kind == DECAY_ALL        ? true
                    : kind == DECAY_MATRICES ? m->tensor[t].ndim > 1
                                             : !decay_spares(m->tensor[t].name);
    if (kind != DECAY_USUAL)
        return decays;
    for (int i = 0; i < n; i++) {
        const struct family_section *lines = &model_family(m)->section[i];

        for (size_t k = 0; k < lines->n; k++) {
            const struct family_line *line = &lines->line[k];

            for (int j = 0; find_norm(line->text) && j < section[i].count; j++) {
                int layer = section[i].repeated ? j : -1;
                struct err ignored;
                bool on;

                if (model_when(m, line->doc, line->when, layer, true, &on, &ignored) <
                        0 ||
                    !on)
                    continue;
                for (const char *at = line->text; (at = find_norm(at));)
                    spare_arguments(decays, m, at, layer);
            }
        }
    }
    return decays;
}
