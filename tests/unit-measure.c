/* unit-measure - values are found in what a trial wrote, and why there is none is told
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/sweep/job/measure.h"
#include "tests/tap.h"

#define TEN   "0123456789"
#define FIFTY TEN TEN TEN TEN TEN

static const char *names[] = { "loss", "acc" };
static const char *const keys[] = { "loss", "a.b" };
static const char *const regexes[] = { "loss=([0-9.]+)", "acc=([0-9.]+)" };

enum ask { PLAIN, ONE, NAMED, KEY, KEYS, HF, IN_FILE, REGEX, REGEXES };

static const struct measure requests[] = {
    [PLAIN] = { 0 },
    [ONE] = { .names = names, .nnames = 1 },
    [NAMED] = { .names = names, .nnames = 2 },
    [KEY] = { .keys = keys, .nkeys = 1 },
    [KEYS] = { .keys = keys, .nkeys = 2 },
    [HF] = { .hf = true },
    [IN_FILE] = { .file = "m.json", .keys = keys, .nkeys = 1 },
    [REGEX] = { .regexes = regexes, .nregexes = 1 },
    [REGEXES] = { .regexes = regexes, .nregexes = 2 },
};

static const struct {
    enum ask ask;
    size_t n;
    const char *result, *out; /* result.json (m.json of IN_FILE) and stdout; or NULL */
    double value[2];
    const char *why; /* of no value; NULL: there are n */
} reads[] = {
    /* result.json, without a request */
    { PLAIN, 1, "3", NULL, { 3 }, NULL },
    { PLAIN, 1, " 0.5 \n", "7\n", { 0.5 }, NULL },
    { PLAIN, 1, "[4]", NULL, { 4 }, NULL },
    { PLAIN, 1, "{\"value\":0.25}", NULL, { 0.25 }, NULL },
    { PLAIN, 2, "{\"values\":[1,2]}", NULL, { 1, 2 }, NULL },
    { PLAIN, 2, "{\"value\":[1,2]}", NULL, { 1, 2 }, NULL },
    { PLAIN, 2, "[1,\n2]", NULL, { 1, 2 }, NULL },
    { PLAIN, 2, "3 4", NULL, { 3, 4 }, NULL },
    { PLAIN, 1, "loss=0.5", NULL, { 0.5 }, NULL },
    { PLAIN,
      2,
      "{\"value\":1}",
      NULL,
      { 0 },
      "no number in result.json: {\"value\":1}" },
    { PLAIN, 1, "{\"values\":[1,2]}", NULL, { 0 }, "no number in result.json" },
    { PLAIN, 2, "[1,\"a\"]", NULL, { 0 }, "no number in result.json: [1,\"a\"]" },
    { PLAIN, 1, "{\"value\":NaN}", NULL, { 0 }, "no number in result.json" },
    { PLAIN, 1, "{\"value\":-Infinity}", NULL, { 0 }, "no number in result.json" },
    { PLAIN, 1, "{\"value\":{}}", NULL, { 0 }, "no number in result.json" },
    { PLAIN, 1, "{\"x\":\"" FIFTY FIFTY "\"}", NULL, { 0 }, "0123..." },
    { PLAIN, 1, "{\"x\":\"a\nb\"}\n", NULL, { 0 }, "{\"x\":\"a b\"}" },
    { PLAIN, 1, "true", NULL, { 0 }, "the last line of result.json is 'true'" },
    { PLAIN, 1, "", NULL, { 0 }, "it is empty (result.json)" },
    /* the last line of stdout */
    { PLAIN, 1, NULL, "1\n2\n\n", { 2 }, NULL },
    { PLAIN, 1, NULL, "the loss 0.5", { 0.5 }, NULL },
    { PLAIN,
      1,
      NULL,
      "loss 0.5 time 12.3",
      { 0 },
      "2 for 1 objective; the last line of stdout is 'loss 0.5 time 12.3'" },
    { PLAIN, 1, NULL, "epoch=3 0.5", { 0 }, "2 for 1 objective" },
    { PLAIN, 1, NULL, "{\"value\": 2, \"time\": 3}", { 2 }, NULL },
    { PLAIN, 1, NULL, "loss:0.5", { 0.5 }, NULL },
    { PLAIN, 1, NULL, "_l=0.5", { 0.5 }, NULL },
    { PLAIN, 2, NULL, "a=1 b=2\r\n", { 1, 2 }, NULL },
    { PLAIN, 1, NULL, "=0.5", { 0 }, "no number in its output: =0.5" },
    { PLAIN, 1, NULL, "3=0.5", { 0 }, "no number in its output: 3=0.5" },
    { PLAIN, 1, NULL, "loss=", { 0 }, "no number in its output: loss=" },
    { PLAIN,
      1,
      NULL,
      "1 2",
      { 0 },
      "2 for 1 objective; the last line of stdout is '1 2'" },
    { PLAIN, 2, NULL, "1", { 0 }, "1 for 2 objectives" },
    { PLAIN, 1, NULL, NULL, { 0 }, "it is empty (stdout)" },
    { PLAIN, 1, NULL, "\n \n", { 0 }, "it is empty (stdout)" },
    /* objectives by their names */
    { NAMED, 2, "{\"loss\":1,\"acc\":2}", NULL, { 1, 2 }, NULL },
    { NAMED, 2, "{\"loss\":1}", NULL, { 0 }, "no number in result.json" },
    { NAMED, 2, "{\"loss\":1,\"acc\":NaN}", NULL, { 0 }, "no number in result.json" },
    { NAMED, 1, "{\"loss\":1,\"acc\":2}", NULL, { 0 }, "no number in result.json" },
    { NAMED, 1, "{\"value\":3}", NULL, { 3 }, NULL },
    { NAMED, 2, NULL, "1\n{\"acc\": 2, \"loss\": 1, \"x\": 3}\n", { 1, 2 }, NULL },
    { ONE, 1, NULL, "loss 0.5 time 12.3", { 0.5 }, NULL },
    { ONE, 1, NULL, "epoch 3, loss: 0.5, time: 2", { 0.5 }, NULL },
    { ONE, 1, NULL, "loss=1 loss = 0.5 %", { 0.5 }, NULL },
    { ONE, 1, NULL, "loss=nan;loss=0.5", { 0.5 }, NULL },
    { ONE, 1, NULL, "train loss 0.5 val loss nan", { 0 }, "no number in its output" },
    { ONE, 1, NULL, "loss 0.5 loss inf,", { 0 }, "no number in its output" },
    { ONE, 1, NULL, "loss=0,5", { 0 }, "no number in its output: loss=0,5" },
    { ONE, 1, NULL, "loss=0.5,3", { 0 }, "no number in its output: loss=0.5,3" },
    { ONE, 1, NULL, "loss=0.5,acc=3", { 0.5 }, NULL },
    { ONE, 1, NULL, "loss 0.5 is the best loss yet", { 0.5 }, NULL },
    { ONE, 1, NULL, "val_loss 1 losses 2 loss3 3", { 0 }, "3 for 1 objective" },
    { ONE, 1, NULL, "loss", { 0 }, "no number in its output: loss" },
    { ONE, 1, NULL, "loss 7\n12.3\n", { 12.3 }, NULL },
    { NAMED, 2, NULL, "time 3 acc 2 loss 1", { 1, 2 }, NULL },
    { NAMED, 2, NULL, "time 3 loss 1", { 0 }, "no number for 'acc'; the last line" },
    /* members */
    { KEY, 1, "{\"loss\":1}", "{\"loss\":2}\n", { 1 }, NULL },
    { KEY, 1, "{\"x\":1}", "{\"loss\":2}\n", { 2 }, NULL },
    { KEY, 1, NULL, "{\"loss\":1}\n{\"loss\":2}\nbye\n", { 2 }, NULL },
    { KEY, 1, NULL, "{\"loss\":1}\n{\"loss\":null}\n{\"loss\":\n", { 1 }, NULL },
    { KEY, 1, "[{\"loss\":1},{\"loss\":4},{\"x\":5},7]", NULL, { 4 }, NULL },
    { KEY, 1, "{\"loss\":[1,[2,3]]}", NULL, { 3 }, NULL },
    { KEY, 1, "{\"loss\":[]}", NULL, { 0 }, "no number at 'loss' in result.json, nor" },
    { KEY, 1, "{\"loss\":1,\"x\":NaN}", NULL, { 1 }, NULL },
    { KEY, 1, "{\"NaN \\\"Infinity\":2,\"loss\":1}", NULL, { 1 }, NULL },
    { KEY, 1, NULL, NULL, { 0 }, "no number at 'loss' in a line of JSON of stdout" },
    { KEYS, 2, "{\"loss\":1,\"a\":{\"b\":2}}", NULL, { 1, 2 }, NULL },
    { KEYS, 2, "{\"loss\":1,\"a.b\":3,\"a\":{\"b\":2}}", NULL, { 1, 3 }, NULL },
    { KEYS, 2, "{\"loss\":1,\"a\":[{\"b\":4},{\"b\":5}]}", NULL, { 1, 5 }, NULL },
    { KEYS, 2, "{\"loss\":1,\"a\":2}", NULL, { 0 }, "no number at 'loss', 'a.b'" },
    { IN_FILE, 1, "{\"loss\":1}", NULL, { 1 }, NULL },
    { IN_FILE,
      1,
      "{\"x\":1}",
      "{\"loss\":2}\n",
      { 0 },
      "no number at 'loss' in m.json" },
    { IN_FILE, 1, NULL, NULL, { 0 }, "no number: m.json cannot be read" },
    /* Hugging Face's objective */
    { HF,
      1,
      "{\"eval_loss\":0.5,\"epoch\":1,\"eval_runtime\":3}",
      NULL,
      { 0.5 },
      NULL },
    { HF, 1, "{\"eval_loss\":0.5,\"a\":1,\"b\":2}", NULL, { 3 }, NULL },
    { HF, 1, "{\"a\":1,\"b\":\"x\"}", NULL, { 0 }, "no metrics of numbers alone" },
    { HF, 1, "{\"eval_loss\":NaN}", NULL, { 0 }, "no metrics of numbers alone" },
    { HF, 1, "{\"epoch\":1}", NULL, { 0 }, "no metrics of numbers alone" },
    { HF, 1, "[1]", NULL, { 0 }, "no metrics of numbers alone" },
    /* regular expressions */
    { REGEX, 1, NULL, "loss=1\nloss=2.5\n", { 2.5 }, NULL },
    { REGEX, 1, NULL, "lose=1\n", { 0 }, "no number that matches 'loss=([0-9.]+)'" },
    { REGEX, 1, NULL, NULL, { 0 }, "in stdout" },
    { REGEXES, 2, NULL, "loss=1 acc=3\n", { 1, 3 }, NULL },
    { REGEXES, 2, NULL, "loss=1\n", { 0 }, "', 'acc=" },
};

static const struct {
    const char *result;
    const char *want; /* NULL: none; "!": bad */
} constraints[] = {
    { NULL, NULL },
    { "{", NULL },
    { "{}", NULL },
    { "{\"constraints\":1}", "[1]" },
    { "{\"constraints\":[]}", "[]" },
    { "{\"constraints\":[1,-0.5]}", "[1, -0.5]" },
    { "{\"constraints\":[1],\"x\":NaN}", "[1]" },
    { "{\"constraints\":\"a\"}", "!" },
    { "{\"constraints\":null}", "!" },
    { "{\"constraints\":[1,[2]]}", "!" },
    { "{\"constraints\":[NaN]}", "!" },
};

static const struct {
    const char *line;
    enum ask ask;
    int64_t step; /* -1: no report */
    double value;
} reports[] = {
    { "3 0.5", PLAIN, 3, 0.5 },
    { " \t3\t 0.5 \r\n", PLAIN, 3, 0.5 },
    { "{\"step\":3,\"value\":0.5}", PLAIN, 3, 0.5 },
    { "{\"step\":3,\"loss\":0.5,\"x\":NaN}", KEY, 3, 0.5 },
    { "0 -1", PLAIN, 0, -1 },
    { "", PLAIN, -1, 0 },
    { "3", PLAIN, -1, 0 },
    { "x 1", PLAIN, -1, 0 },
    { "-1 1", PLAIN, -1, 0 },
    { "3.5 1", PLAIN, -1, 0 },
    { "3 x", PLAIN, -1, 0 },
    { "3 1 2", PLAIN, -1, 0 },
    { "{\"step\":-3,\"value\":0.5}", PLAIN, -1, 0 },
    { "{\"step\":3.5,\"value\":0.5}", PLAIN, -1, 0 },
    { "{\"step\":3}", PLAIN, -1, 0 },
    { "{\"value\":3}", PLAIN, -1, 0 },
    { "{\"step\":3", PLAIN, -1, 0 },
};

static const struct {
    struct measure m;
    size_t n;
    const char *why; /* NULL: it can be */
} checks[] = {
    { { 0 }, 2, NULL },
    { { .hf = true }, 1, NULL },
    { { .hf = true }, 2, "hf is one objective, not 2" },
    { { .hf = true, .keys = keys, .nkeys = 1 }, 1, "exclude one another" },
    { { .keys = keys, .nkeys = 1, .regexes = regexes, .nregexes = 1 }, 1, "exclude" },
    { { .file = "m", .regexes = regexes, .nregexes = 1 }, 1, "read standard output" },
    { { .keys = keys, .nkeys = 2 }, 1, "2 values for 1 objectives" },
    { { .regexes = regexes, .nregexes = 1 }, 2, "1 values for 2 objectives" },
    { { .regexes = regexes, .nregexes = 2 }, 2, NULL },
    { { .regexes = (const char *const[]){ "(" }, .nregexes = 1 }, 1, "(" },
};

static char directory[] = "/tmp/unit-measure.XXXXXX";

static void put(const char *name, const char *text)
{
    char *path = fs_join_dup(directory, name);

    unlink(path);
    if (text && output_write(path, text, strlen(text), false, NULL) < 0)
        abort();
    free(path);
}

static bool find(double *v, size_t n, const struct measure *m, const char *dir,
                 struct str *why)
{
    struct err err = { 0 };
    bool ok = false;

    return measure_read(&ok, v, n, m, dir, why, &err) == 0 && ok;
}

static bool find_constraints(char **json, const struct measure *m, const char *dir,
                             struct str *why)
{
    struct err err = { 0 };
    bool ok = false;

    return measure_constraints(&ok, json, m, dir, why, &err) == 0 && ok;
}

static void check_reads(void)
{
    for (size_t i = 0; i < sizeof(reads) / sizeof(*reads); i++) {
        const struct measure *m = &requests[reads[i].ask];
        double v[2] = { 0 };
        struct str why = { 0 };
        bool found, good = true;

        put("result.json", m->file ? NULL : reads[i].result);
        put("m.json", m->file ? reads[i].result : NULL);
        put("stdout", reads[i].out);
        found = find(v, reads[i].n, m, directory, &why);
        for (size_t k = 0; found && k < reads[i].n; k++)
            good &= v[k] == reads[i].value[k];
        if (!tap_ok(found == !reads[i].why && good &&
                        (found || (strstr(str_text(&why), reads[i].why) &&
                                   !strchr(why.s, '\n'))),
                    "value %zu is %s", i, reads[i].why ? "refused" : "found"))
            printf("#   %g %g: %s\n", v[0], v[1], str_text(&why));
        str_clear(&why);
    }
}

/* A value before more of stdout than is read at first. */
static void check_long(void)
{
    struct str out = { 0 };
    struct str why = { 0 };
    double v = 0;

    put("result.json", NULL);
    str_add(&out, "loss=4\n{\"loss\":5}\n");
    for (int i = 0; i < 2000; i++)
        str_add(&out, FIFTY "\n");
    put("stdout", out.s);
    tap_ok(find(&v, 1, &requests[KEY], directory, &why) && v == 5,
           "a line of JSON long before the end is found");
    tap_ok(find(&v, 1, &requests[REGEX], directory, &why) && v == 4, "so is a match");
    str_reset(&out);
    for (int i = 0; i < 2000; i++)
        str_add(&out, FIFTY);
    put("stdout", out.s);
    tap_ok(!find(&v, 1, &requests[REGEX], directory, &why),
           "one line of 100 kB has none");
    str_clear(&out);
    str_clear(&why);
}

/* A file that is there and cannot be read is named: stdout does not stand in for it. */
static void check_unreadable(void)
{
    char *result = fs_join_dup(directory, "result.json");
    char *file = fs_join_dup(directory, "m.json");
    struct str why = { 0 };
    char *json = NULL;
    double v = 0;

    put("result.json", "3\n");
    put("m.json", "3\n");
    put("stdout", "{\"loss\":4}\n5\n");
    if (truncate(result, (64 << 20) + 1) < 0)
        abort();
    tap_ok(!find(&v, 1, &requests[PLAIN], directory, &why) &&
               !strcmp(why.s, "no number: result.json: larger than 67108864 bytes"),
           "a result.json that is too large is no value");
    str_reset(&why);
    tap_ok(!find(&v, 1, &requests[KEY], directory, &why) &&
               strstr(why.s, "result.json: larger than"),
           "nor one with a request");
    str_reset(&why);
    tap_ok(!find_constraints(&json, &requests[REGEX], directory, &why) && !json &&
               strstr(why.s, "result.json: larger than"),
           "nor has it constraints");
    unlink(file);
    unlink(result);
    if (mkdir(file, 0700) < 0 || symlink("m.json", result) < 0)
        abort();
    str_reset(&why);
    tap_ok(!find(&v, 1, &requests[PLAIN], directory, &why) &&
               !strcmp(why.s, "no number: result.json: not a regular file"),
           "nor is a directory");
    str_reset(&why);
    tap_ok(!find(&v, 1, &requests[IN_FILE], directory, &why) &&
               !strcmp(why.s, "no number: m.json: not a regular file"),
           "nor is the file that is named");
    if (unlink(result) < 0 || rmdir(file) < 0)
        abort();
    free(result);
    free(file);
    str_clear(&why);
}

static void check_others(void)
{
    const double two[] = { 1, 0.5 };
    double v[2] = { 0 };
    struct str why = { 0 };
    struct err err = { 0 };

    for (size_t i = 0; i < sizeof(constraints) / sizeof(*constraints); i++) {
        const char *want = constraints[i].want;
        char *json;
        bool ok;

        put("result.json", constraints[i].result);
        str_reset(&why);
        ok = find_constraints(&json, &requests[PLAIN], directory, &why);
        tap_ok(want && *want == '!'
                   ? !ok && !json && why.len > 0
                   : ok && !json == !want && (!want || !strcmp(json, want)),
               "constraints %zu are %s", i, want ? want : "none");
        free(json);
    }
    for (size_t i = 0; i < sizeof(reports) / sizeof(*reports); i++) {
        int64_t step = 0;
        bool ok = measure_report(&step, v, &requests[reports[i].ask], reports[i].line);

        tap_ok(ok == (reports[i].step >= 0) &&
                   (!ok || (step == reports[i].step && v[0] == reports[i].value)),
               "report %zu is %s", i, reports[i].step < 0 ? "none" : "read");
    }
    for (size_t i = 0; i < sizeof(checks) / sizeof(*checks); i++) {
        int ret = measure_check(&checks[i].m, checks[i].n, &err);

        tap_ok(checks[i].why ? ret < 0 && err.kind == ERR_USAGE &&
                                   strstr(err.text, checks[i].why) != NULL
                             : ret == 0,
               "request %zu is %s", i, checks[i].why ? "refused" : "taken");
    }
    for (size_t n = 1; n <= 2; n++) {
        put("result.json", NULL);
        tap_ok(measure_keep(two, n, directory, &err) == 0 &&
                   find(v, n, &requests[PLAIN], directory, &why) && v[0] == 1 &&
                   (n == 1 || v[1] == 0.5),
               "%zu values that are kept are read again", n);
    }
    put("result.json", "7");
    tap_ok(measure_keep(two, 1, directory, &err) == 0 &&
               find(v, 1, &requests[PLAIN], directory, &why) && v[0] == 7,
           "what the command left is not written over");
    str_clear(&why);
}

int main(void)
{
    if (!mkdtemp(directory))
        return 99;
    check_reads();
    check_long();
    check_unreadable();
    check_others();
    if (fs_remove_tree(directory, NULL) < 0)
        return 99;
    return tap_done();
}
