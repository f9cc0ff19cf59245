/* measure - the values of a trial, out of what its command wrote */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/base/str.h"
#include "lib/sweep/job/grep.h"
#include "lib/sweep/job/measure.h"
#include "lib/sweep/storage/study.h"

enum { FILE_MAX = 64 << 20, TAIL_BYTES = 1 << 16 };

int measure_check(const struct measure *m, size_t n, struct err *err)
{
    if ((m->nkeys > 0) + (m->nregexes > 0) + m->hf > 1)
        return err_set(err, ERR_USAGE,
                       "keys, regular expressions and hf exclude one another");
    if (m->nregexes && m->file)
        return err_set(err, ERR_USAGE, "regular expressions read standard output");
    if (m->hf && n != 1)
        return err_set(err, ERR_USAGE, "hf is one objective, not %zu", n);
    if ((m->nkeys && m->nkeys != n) || (m->nregexes && m->nregexes != n))
        return err_set(err, ERR_USAGE, "%zu values for %zu objectives",
                       m->nkeys + m->nregexes, n);
    for (size_t i = 0; i < m->nregexes; i++) {
        struct grep *g;

        if (grep_open(&g, m->regexes[i], err) < 0)
            return -1;
        grep_free(g);
    }
    return 0;
}

/* N numbers out of a JSON number, list, or object with "value" or "values". */
static bool json_values(double *values, size_t n, const struct json *j)
{
    size_t i = 0;

    if (j->type == JSON_OBJECT)
        j = json_get(j, "values") ? json_get(j, "values") : json_get(j, "value");
    if (j && j->type == JSON_NUMBER)
        return n == 1 && json_double(j, values);
    if (!j || j->type != JSON_ARRAY || j->n != n)
        return false;
    for (j = j->first; j; j = j->next)
        if (!json_double(j, &values[i++]))
            return false;
    return true;
}

/* Append TEXT[n] as part of a message: one line, and not too long. */
static void add_snippet(struct str *out, const char *text, size_t n)
{
    enum { MOST = 80 };
    size_t end;

    while (n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    end = n;
    if (n > MOST)
        for (end = MOST; end > 0 && (text[end] & 0xc0) == 0x80;)
            end--;
    for (size_t i = 0; i < end; i++)
        str_addc(out, (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? ' ' : text[i]);
    str_add(out, end < n ? "..." : "");
}

/* The number that WORD is, or that follows '=' or ':' in it after a name. */
static bool word_value(double *out, const char *word)
{
    size_t n = strcspn(word, "=:");

    if (str_double(word, out))
        return true;
    return word[n] && (isalpha((unsigned char)*word) || *word == '_') &&
           str_double(word + n + 1, out);
}

/* A line and its words; v borrows from a copy of it. */
struct line {
    char *text, *copy, **v; /* [n] */
    size_t n, cap;
};

static void split_line(struct line *l, const char *text, size_t n)
{
    char *save = NULL;

    *l = (struct line){ .text = xstrndup(text, n), .copy = xstrndup(text, n) };
    for (char *w = strtok_r(l->copy, " \t\r\v\f", &save); w;
         w = strtok_r(NULL, " \t\r\v\f", &save)) {
        l->v = xgrow(l->v, &l->cap, l->n + 1, sizeof(*l->v));
        l->v[l->n++] = w;
    }
}

static const char blanks[] = " \t\r\v\f", ends[] = " \t\r\v\f,;";

/* Reads the number at TEXT, up to a blank or a comma; *found says whether it is one.  A
 * word is none, and leaves *found; NaN, infinity and "0,5" clear it. */
static void read_number(double *out, bool *found, const char *text)
{
    size_t n = strcspn(text, ends);
    char *number, *end;
    double value;

    while (text[n] == ',' && isdigit((unsigned char)text[n + 1]))
        n += 1 + strcspn(text + n + 1, ends);
    number = xstrndup(text, n);
    value = strtod(number, &end);
    if (str_double(number, out))
        *found = true;
    else if (end > number && (*end == ',' || (!*end && !isfinite(value))))
        *found = false;
    free(number);
}

/* The number that follows NAME in LINE: "NAME 1", "NAME=1", "NAME: 1" or "NAME = 1",
 * with a comma behind it or not; the last one counts. */
static bool named_value(double *out, const char *name, const char *line)
{
    size_t n = strlen(name);
    bool found = false;

    for (const char *at = line; n && (at = strstr(at, name)); at++) {
        const char *rest = at + n + strspn(at + n, blanks);

        if ((at > line && !strchr(ends, at[-1])) ||
            (*rest != '=' && *rest != ':' && rest == at + n))
            continue;
        if (*rest == '=' || *rest == ':')
            rest += 1 + strspn(rest + 1, blanks);
        read_number(out, &found, rest);
    }
    return found;
}

/* The numbers of LINE that M's names stand before, unless none does; *ok says whether
 * there are N of them. */
static bool take_named(bool *ok, double *values, size_t n, const struct measure *m,
                       const char *line, struct str *why)
{
    const char *missing = NULL;
    size_t found = 0;

    for (size_t i = 0; i < m->nnames && m->nnames == n; i++)
        if (named_value(&values[i], m->names[i], line))
            found++;
        else if (!missing)
            missing = m->names[i];
    *ok = found == n;
    if (found && missing)
        str_addf(why, "no number for '%s'", missing);
    return found > 0;
}

/* The last N words of LINE, which are to be its only numbers. */
static bool take_words(double *values, size_t n, const struct line *l, struct str *why)
{
    const char *wrong = NULL;
    size_t count = 0;
    double ignored;

    for (size_t i = 0; i < n && i < l->n && !wrong; i++)
        if (!word_value(&values[n - 1 - i], l->v[l->n - 1 - i]))
            wrong = l->v[l->n - 1 - i];
    for (size_t i = 0; i < l->n; i++)
        count += word_value(&ignored, l->v[i]);
    if (wrong) {
        str_add(why, "no number in its output: ");
        add_snippet(why, wrong, strlen(wrong));
    } else if (!l->n) {
        str_add(why, "no number in its output: it is empty");
    } else if (count != n) {
        str_addf(why, "not the right count of numbers: %zu for %zu objective%s", count,
                 n, n > 1 ? "s" : "");
    }
    return !why->len;
}

static bool read_json(double *values, size_t n, const struct measure *m,
                      const char *text, size_t len);

/* What the last line that is not empty of TEXT, which is that of the file NAME, says: a
 * JSON object, numbers behind M's names, or no other numbers than those asked for. */
static bool line_values(double *values, size_t n, const struct measure *m,
                        const char *text, const char *name, struct str *why)
{
    size_t end = strlen(text), start;
    struct line l;
    bool ok;

    while (end > 0 && isspace((unsigned char)text[end - 1]))
        end--;
    for (start = end; start > 0 && text[start - 1] != '\n';)
        start--;
    if (text[start] == '{' && read_json(values, n, m, text + start, end - start))
        return true;
    split_line(&l, text + start, end - start);
    if (!take_named(&ok, values, n, m, l.text, why))
        ok = take_words(values, n, &l, why);
    if (!ok && end > start) {
        str_addf(why, "; the last line of %s is '", name);
        add_snippet(why, text + start, end - start);
        str_addc(why, '\'');
    } else if (!ok) {
        str_addf(why, " (%s)", name);
    }
    free(l.text);
    free(l.copy);
    free(l.v);
    return ok;
}

/* The number at KEY below J: members divided by dots (a member whose name holds the
 * dots comes first), of a list its last element that has one; NaN when that is no
 * number. */
static bool find_number(double *out, const struct json *j, const char *key)
{
    const struct json *member = json_get(j, key);
    bool found = false;

    if (!j)
        return false;
    if (j->type == JSON_ARRAY) {
        for (const struct json *e = j->first; e; e = e->next)
            found |= find_number(out, e, key);
        return found;
    }
    if (member) {
        while (member->type == JSON_ARRAY && member->first) {
            member = member->first;
            while (member->next)
                member = member->next;
        }
        if (!json_double(member, out))
            *out = NAN;
        return true;
    }
    for (const char *dot = strchr(key, '.'); dot; dot = strchr(dot + 1, '.')) {
        char *head = xstrndup(key, (size_t)(dot - key));

        member = json_get(j, head);
        free(head);
        if (member && find_number(out, member, dot + 1))
            return true;
    }
    return false;
}

/* Hugging Face's default_compute_objective (trainer_utils.py): eval_loss when nothing
 * but times is beside it, else the sum of the other metrics. */
static bool hf_objective(double *out, const struct json *j)
{
    static const char *const times[] = { "_runtime", "_per_second",
                                         "_compilation_time" };
    const struct json *loss = json_get(j, "eval_loss");
    double sum = 0, value;
    bool some = false;

    if (j->type != JSON_OBJECT)
        return false;
    for (const struct json *k = j->first; k; k = k->next) {
        bool skipped = k == loss || !strcmp(k->key, "epoch");

        for (size_t i = 0; i < sizeof(times) / sizeof(*times); i++)
            skipped |= str_ends(k->key, times[i]);
        if (skipped)
            continue;
        if (!json_double(k, &value))
            return false;
        sum += value;
        some = true;
    }
    *out = sum;
    return some || (loss && json_double(loss, out));
}

static bool read_object(double *values, size_t n, const struct measure *m,
                        const struct json *root)
{
    if (m->hf)
        return hf_objective(values, root);
    for (size_t i = 0; i < m->nkeys; i++)
        if (!find_number(&values[i], root, m->keys[i]) || isnan(values[i]))
            return false;
    if (m->nkeys || json_values(values, n, root))
        return true;
    for (size_t i = 0; i < m->nnames; i++)
        if (!find_number(&values[i], root, m->names[i]) || isnan(values[i]))
            return false;
    return m->nnames == n;
}

/* Python writes what JSON does not have, NaN and infinities, as bare words.  They
 * become empty strings, which are no numbers either (null would not fit into "NaN"), so
 * that one of them does not hide the numbers beside it. */
static void drop_bare_words(char *text)
{
    static const char *const words[] = { "NaN", "Infinity", "-Infinity" };
    bool quoted = false;

    for (char *p = text; *p; p++) {
        if (quoted && *p == '\\' && p[1])
            p++;
        else if (*p == '"')
            quoted = !quoted;
        for (size_t i = 0; !quoted && i < sizeof(words) / sizeof(*words); i++)
            if (str_starts(p, words[i])) {
                memset(p, ' ', strlen(words[i]));
                memcpy(p, "\"\"", 2);
                p += strlen(words[i]) - 1;
                break;
            }
    }
}

static bool read_json(double *values, size_t n, const struct measure *m,
                      const char *text, size_t len)
{
    char *copy = xstrndup(text, len);
    struct json_doc doc;
    bool ok;

    drop_bare_words(copy);
    ok = json_parse(&doc, "metrics", copy, strlen(copy), NULL) == 0;
    if (ok) {
        ok = read_object(values, n, m, doc.root);
        json_clear(&doc);
    }
    free(copy);
    return ok;
}

/* The last line of TEXT that is JSON and has what is asked for. */
static bool read_lines(double *values, size_t n, const struct measure *m,
                       const char *text)
{
    size_t end = strlen(text);

    while (end > 0) {
        size_t start = end;

        while (start > 0 && text[start - 1] != '\n')
            start--;
        if (text[start] == '{' && read_json(values, n, m, text + start, end - start))
            return true;
        end = start ? start - 1 : 0;
    }
    return false;
}

static bool read_matches(double *values, const struct measure *m, const char *text)
{
    for (size_t i = 0; i < m->nregexes; i++) {
        struct grep *g;
        bool found;

        if (grep_open(&g, m->regexes[i], NULL) < 0)
            return false;
        found = grep_last(&values[i], g, text);
        grep_free(g);
        if (!found)
            return false;
    }
    return true;
}

/* The last bytes of the trial's standard output; *whole says whether they are all.
 * *text is NULL when it is missing. */
static int read_tail(char **text, const char *dir, uint64_t bytes, bool *whole,
                     struct err *err)
{
    char *path = fs_join_dup(dir, "stdout");
    uint64_t size = 0;
    size_t n;
    bool found;
    int ret = fs_find(&found, path, err);

    *text = NULL;
    *whole = true;
    if (ret == 0 && found)
        ret = fs_size(&size, path, err);
    *whole = size <= bytes;
    if (ret == 0 && found)
        ret = fs_read_part(text, &n, path, *whole ? 0 : size - bytes,
                           (size_t)(*whole ? size : bytes), err);
    if (ret == 0 && *text)
        for (char *nul = *text; (nul = memchr(nul, '\0', (size_t)(*text + n - nul)));)
            *nul = ' ';
    free(path);
    return ret;
}

/* What is asked for out of the standard output, of which the end mostly suffices. */
static int read_output(bool *ok, double *values, size_t n, const struct measure *m,
                       const char *dir, struct err *err)
{
    bool whole = false;

    *ok = false;
    for (uint64_t bytes = TAIL_BYTES; !*ok && !whole && bytes <= FILE_MAX;
         bytes = bytes < FILE_MAX ? FILE_MAX : FILE_MAX + 1) {
        char *text, *from;

        if (read_tail(&text, dir, bytes, &whole, err) < 0)
            return -1;
        if (!text)
            break;
        from = whole ? text : strchr(text, '\n');
        if (!from)
            from = text;
        *ok = m->nregexes ? read_matches(values, m, from)
                          : read_lines(values, n, m, from);
        free(text);
    }
    return 0;
}

/* The file NAME of the trial, unless NAME is a path of its own.  *text is NULL if it is
 * missing, or if it is none that can be read, which *why then says. */
static int read_named(char **text, const char *dir, const char *name, struct str *why,
                      struct err *err)
{
    char *path = name[0] == '/' ? xstrdup(name) : fs_join_dup(dir, name);
    int ret = fs_read_optional(text, NULL, path, FILE_MAX, err);

    if (ret < 0)
        *text = NULL;
    if (ret < 0 && err->kind == ERR_INPUT) {
        str_addf(why, "no number: %s%s", name,
                 err->text + (str_starts(err->text, path) ? strlen(path) : 0));
        *err = (struct err){ 0 };
        ret = 0;
    }
    free(path);
    return ret;
}

/* What was asked for and not found, and where it was looked for. */
static void explain_asked(struct str *why, const struct measure *m, bool result)
{
    const char *const *names = m->nregexes ? m->regexes : m->keys;
    size_t n = m->nregexes ? m->nregexes : m->nkeys;

    if (m->hf)
        str_add(why, "no metrics of numbers alone");
    else
        str_add(why, m->nregexes ? "no number that matches " : "no number");
    for (size_t i = 0; i < n; i++) {
        str_add(why, i ? ", '" : m->nregexes ? "'" : " at '");
        add_snippet(why, names[i], strlen(names[i]));
        str_addc(why, '\'');
    }
    str_addf(why, " in %s",
             m->nregexes ? "stdout"
             : m->file   ? m->file
             : result    ? "result.json, nor in a line of JSON of stdout"
                         : "a line of JSON of stdout");
}

static int read_asked(bool *ok, double *values, size_t n, const struct measure *m,
                      const char *dir, struct str *why, struct err *err)
{
    const char *name = m->file ? m->file : "result.json";
    size_t before = why->len;
    char *text = NULL;
    int ret = 0;

    if (!m->nregexes && read_named(&text, dir, name, why, err) < 0)
        return -1;
    *ok = text && read_json(values, n, m, text, strlen(text));
    if (why->len > before) /* what is there and cannot be read is not passed over */
        return 0;
    if (!*ok && !m->file)
        ret = read_output(ok, values, n, m, dir, err);
    if (ret == 0 && !*ok && m->file && !text)
        str_addf(why, "no number: %s cannot be read", m->file);
    else if (ret == 0 && !*ok)
        explain_asked(why, m, text != NULL);
    free(text);
    return ret;
}

/* Of result.json, which is TEXT: JSON, or a line of numbers. */
static bool read_result(double *values, size_t n, const struct measure *m,
                        const char *text, struct str *why)
{
    const char *first = text + strspn(text, " \t\r\n");

    if (read_json(values, n, m, text, strlen(text)))
        return true;
    if (*first != '{' && *first != '[')
        return line_values(values, n, m, text, "result.json", why);
    str_add(why, "no number in result.json: ");
    add_snippet(why, first, strlen(first));
    return false;
}

int measure_read(bool *ok, double *values, size_t n, const struct measure *m,
                 const char *dir, struct str *why, struct err *err)
{
    size_t before = why->len;
    char *text;
    bool whole;

    *ok = false;
    if (m->file || m->nkeys || m->nregexes || m->hf)
        return read_asked(ok, values, n, m, dir, why, err);
    if (read_named(&text, dir, "result.json", why, err) < 0)
        return -1;
    if (text) {
        *ok = read_result(values, n, m, text, why);
    } else if (why->len == before) {
        if (read_tail(&text, dir, TAIL_BYTES, &whole, err) < 0)
            return -1;
        *ok = line_values(values, n, m, text ? text : "", "stdout", why);
    }
    free(text);
    return 0;
}

static bool print_constraints(struct str *out, const struct json *list)
{
    const struct json *j = list->type == JSON_ARRAY ? list->first : list;
    double value;

    str_addc(out, '[');
    for (; j; j = list->type == JSON_ARRAY ? j->next : NULL) {
        if (!json_double(j, &value))
            return false;
        str_add(out, out->len > 1 ? ", " : "");
        str_add_double(out, value);
    }
    str_addc(out, ']');
    return true;
}

int measure_constraints(bool *ok, char **json, const struct measure *m, const char *dir,
                        struct str *why, struct err *err)
{
    struct json_doc doc;
    struct str out = { 0 };
    char *text;

    *json = NULL;
    if (read_named(&text, dir, m->file ? m->file : "result.json", why, err) < 0)
        return -1;
    *ok = text || !why->len;
    if (text)
        drop_bare_words(text);
    if (text && json_parse(&doc, "metrics", text, strlen(text), NULL) == 0) {
        const struct json *list = json_get(doc.root, "constraints");

        *ok = !list || print_constraints(&out, list);
        if (*ok && list)
            *json = str_steal(&out);
        if (!*ok)
            str_addf(why, "no numbers: the constraints in %s",
                     m->file ? m->file : "result.json");
        json_clear(&doc);
    }
    str_clear(&out);
    free(text);
    return 0;
}

int measure_keep(const double *values, size_t n, const char *dir, struct err *err)
{
    char *path = fs_join_dup(dir, "result.json");
    struct str json = { 0 };
    bool found;
    int ret = fs_find(&found, path, err);

    if (ret == 0 && !found) {
        str_add(&json, n > 1 ? "{\"values\": [" : "{\"value\": ");
        for (size_t i = 0; i < n; i++) {
            str_add(&json, i ? ", " : "");
            str_add_double(&json, values[i]);
        }
        str_add(&json, n > 1 ? "]}\n" : "}\n");
        ret = output_write(path, json.s, json.len, false, err);
        str_clear(&json);
    }
    free(path);
    return ret;
}

static bool json_report(int64_t *step, double *value, const struct measure *m,
                        const char *line)
{
    char *copy = xstrdup(line);
    struct json_doc doc;
    bool ok;

    drop_bare_words(copy);
    ok = json_parse(&doc, "report", copy, strlen(copy), NULL) == 0;
    if (ok) {
        ok = json_i64(json_get(doc.root, "step"), step) &&
             find_number(value, doc.root, m->nkeys ? m->keys[0] : "value");
        json_clear(&doc);
    }
    free(copy);
    return ok;
}

bool measure_report(int64_t *step, double *value, const struct measure *m,
                    const char *line)
{
    char *word;
    size_t n;
    bool ok;

    line += strspn(line, " \t");
    if (*line == '{')
        return json_report(step, value, m, line) && *step >= 0;
    n = strcspn(line, " \t");
    word = xstrndup(line, n);
    line += n + strspn(line + n, " \t");
    ok = str_i64(word, step);
    free(word);
    for (n = strlen(line); n > 0 && isspace((unsigned char)line[n - 1]);)
        n--;
    word = xstrndup(line, n);
    ok = ok && study_value(value, word);
    free(word);
    return ok && *step >= 0;
}
