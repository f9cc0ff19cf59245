/* measure - the values of a trial, out of what its command wrote */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
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

/* The last N numbers of the last line that is not empty. */
static bool line_values(double *values, size_t n, char *text)
{
    size_t end = strlen(text);

    while (end > 0 && isspace((unsigned char)text[end - 1]))
        text[--end] = '\0';
    for (size_t i = n; i > 0; i--) {
        char *word;

        while (end > 0 && strchr(" \t,;=:", text[end - 1]))
            text[--end] = '\0';
        while (end > 0 && !strchr(" \t\n,;=:", text[end - 1]))
            end--;
        word = text + end;
        if (!str_double(word, &values[i - 1]))
            return false;
        if (i > 1 && end > 0 && text[end - 1] == '\n')
            return false;
        *word = '\0';
    }
    return true;
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
    return m->nkeys ? true : json_values(values, n, root);
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

/* The last bytes of a file, or NULL; *whole says whether they are all. */
static char *tail_dup(const char *path, uint64_t bytes, bool *whole)
{
    FILE *fp = fopen(path, "rb");
    uint64_t size = 0;
    char *text;
    size_t n;

    if (!fp)
        return NULL;
    if (fs_size(&size, path, NULL) < 0)
        size = bytes;
    *whole = size <= bytes;
    if (!*whole && fseeko(fp, (off_t)(size - bytes), SEEK_SET) < 0)
        rewind(fp);
    if (*whole)
        bytes = size;
    text = xcalloc((size_t)bytes + 1, 1);
    n = fread(text, 1, (size_t)bytes, fp);
    text[n] = '\0';
    for (char *nul = text; (nul = memchr(nul, '\0', (size_t)(text + n - nul)));)
        *nul = ' ';
    fclose(fp);
    return text;
}

/* What is asked for out of the standard output, of which the end mostly suffices. */
static bool read_output(double *values, size_t n, const struct measure *m,
                        const char *dir)
{
    char *path = fs_join_dup(dir, "stdout");
    bool ok = false, whole = false;

    for (uint64_t bytes = TAIL_BYTES; !ok && !whole && bytes <= FILE_MAX;
         bytes = bytes < FILE_MAX ? FILE_MAX : FILE_MAX + 1) {
        char *text = tail_dup(path, bytes, &whole), *from = text;

        if (!text)
            break;
        if (!whole && (from = strchr(text, '\n')) == NULL)
            from = text;
        ok = m->nregexes ? read_matches(values, m, from)
                         : read_lines(values, n, m, from);
        free(text);
    }
    free(path);
    return ok;
}

/* NAME of the trial, unless it is a path of its own; NULL when it cannot be read. */
static char *read_dup(const char *dir, const char *name)
{
    char *path = name[0] == '/' ? xstrdup(name) : fs_join_dup(dir, name);
    char *text = NULL;

    if (fs_read_file(&text, NULL, path, FILE_MAX, NULL) < 0)
        text = NULL;
    free(path);
    return text;
}

static bool read_asked(double *values, size_t n, const struct measure *m,
                       const char *dir)
{
    char *text = m->nregexes ? NULL : read_dup(dir, m->file ? m->file : "result.json");
    bool ok = text && read_json(values, n, m, text, strlen(text));

    free(text);
    return ok || (!m->file && read_output(values, n, m, dir));
}

bool measure_read(double *values, size_t n, const struct measure *m, const char *dir)
{
    char *text, *path;
    bool ok, whole;

    if (m->file || m->nkeys || m->nregexes || m->hf)
        return read_asked(values, n, m, dir);
    if ((text = read_dup(dir, "result.json"))) {
        ok =
            read_json(values, n, m, text, strlen(text)) || line_values(values, n, text);
    } else {
        path = fs_join_dup(dir, "stdout");
        text = tail_dup(path, TAIL_BYTES, &whole);
        ok = text && line_values(values, n, text);
        free(path);
    }
    free(text);
    return ok;
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

bool measure_constraints(char **json, const struct measure *m, const char *dir)
{
    char *text = read_dup(dir, m->file ? m->file : "result.json");
    struct json_doc doc;
    struct str out = { 0 };
    bool ok = true;

    *json = NULL;
    if (text)
        drop_bare_words(text);
    if (text && json_parse(&doc, "metrics", text, strlen(text), NULL) == 0) {
        const struct json *list = json_get(doc.root, "constraints");

        ok = !list || print_constraints(&out, list);
        if (ok && list)
            *json = str_steal(&out);
        json_clear(&doc);
    }
    str_clear(&out);
    free(text);
    return ok;
}

int measure_keep(const double *values, size_t n, const char *dir, struct err *err)
{
    char *path = fs_join_dup(dir, "result.json");
    struct str json = { 0 };
    int ret = 0;

    if (!fs_exists(path)) {
        str_add(&json, n > 1 ? "{\"values\": [" : "{\"value\": ");
        for (size_t i = 0; i < n; i++) {
            str_add(&json, i ? ", " : "");
            str_add_double(&json, values[i]);
        }
        str_add(&json, n > 1 ? "]}\n" : "}\n");
        ret = fs_write_file(path, json.s, json.len, false, err);
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
