/* settings - "name:key=value,key=value", what a sampler or pruner is told */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/sweep/space/settings.h"

static int parse_word(double *value, const struct setting *s, const char *what,
                      const char *text, struct err *err)
{
    struct str known = { 0 };

    for (int i = 0; s->words[i]; i++) {
        if (!strcmp(text, s->words[i])) {
            *value = i;
            str_clear(&known);
            return 0;
        }
        str_addf(&known, "%s%s", i ? ", " : "", s->words[i]);
    }
    err_set(err, ERR_USAGE, "%s: %s is one of %s, not '%s'", what, s->name,
            str_text(&known), text);
    str_clear(&known);
    return -1;
}

static int parse_value(double *value, const struct setting *s, const char *what,
                       const char *text, struct err *err)
{
    double x;

    if (s->words)
        return parse_word(value, s, what, text, err);
    if (isnan(s->fallback) && !strcmp(text, "auto")) {
        *value = NAN;
        return 0;
    }
    if (!str_double(text, &x) || (s->integer && x != floor(x)))
        return err_set(err, ERR_USAGE, "%s: %s: '%s' is not %s", what, s->name, text,
                       s->integer ? "an integer" : "a number");
    if (x < s->min || x > s->max)
        return err_set(err, ERR_USAGE, "%s: %s is between %g and %g, not %s", what,
                       s->name, s->min, s->max, text);
    *value = x;
    return 0;
}

static int parse_one(double *values, const struct setting *list, const char *what,
                     char *item, struct err *err)
{
    char *equals = strchr(item, '=');

    if (!equals)
        return err_set(err, ERR_USAGE, "%s: '%s' is not KEY=VALUE", what, item);
    *equals = '\0';
    for (int i = 0; list[i].name; i++)
        if (!strcmp(list[i].name, item))
            return parse_value(&values[i], &list[i], what, equals + 1, err);
    return err_set(err, ERR_USAGE, "%s has no setting '%s'", what, item);
}

int settings_parse(double values[SETTINGS_MAX], const struct setting *list,
                   const char *what, const char *text, struct err *err)
{
    double parsed[SETTINGS_MAX] = { 0 };
    char *copy, *item, *comma;
    int ret = -1;

    for (int i = 0; list[i].name; i++)
        parsed[i] = list[i].fallback;
    copy = xstrdup(text ? text : "");
    for (item = *copy ? copy : NULL; item; item = comma) {
        comma = strchr(item, ',');
        if (comma)
            *comma++ = '\0';
        if (parse_one(parsed, list, what, item, err) < 0)
            goto out;
    }
    memcpy(values, parsed, sizeof(parsed));
    ret = 0;
out:
    free(copy);
    return ret;
}
