/* unit-space - sweep files of every format, what they mean and what is refused */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/sweep/sampler/fanova.h"
#include "lib/sweep/sampler/sampler.h"
#include "lib/sweep/format/sweepfile.h"
#include "tests/tap.h"

static struct err err;

static void describe_one(struct str *out, const struct space *s, size_t i)
{
    static const char *const shapes[] = { "",           " log prior", " normal",
                                          " lognormal", " beta",      " weighted" };
    const struct space_param *p = &s->params[i];

    str_addf(out, "%s%s", i ? "; " : "", p->name);
    if (p->dist.kind == DIST_CATEGORICAL) {
        for (size_t k = 0; k < p->dist.nchoices; k++)
            str_addf(out, "%c%s", k ? '|' : ' ', p->dist.choices[k]);
    } else {
        str_addf(out, " %s %.6g..%.6g", p->dist.kind == DIST_INT ? "int" : "float",
                 p->dist.low, p->dist.high);
        if (p->dist.step > 0 && !(p->dist.kind == DIST_INT && p->dist.step == 1))
            str_addf(out, " step %g", p->dist.step);
        if (p->dist.log)
            str_add(out, " log");
    }
    str_add(out, shapes[p->shape]);
    if (p->parent >= 0) {
        str_addf(out, " if %s", s->params[p->parent].name);
        for (size_t k = 0; k < s->params[p->parent].dist.nchoices; k++)
            if (p->when[k])
                str_addf(out, " %s", s->params[p->parent].dist.choices[k]);
    }
}

static bool parse(struct sweepfile *f, const char *text)
{
    return sweepfile_parse(f, "s.yaml", text, strlen(text), &err) == 0;
}

/* SPEC is one that is known. */
static void choose_sampler(struct sampler_choice *c, const char *spec)
{
    if (sampler_parse(c, spec, &err) < 0)
        abort();
}

static void means(const char *text, const char *want, const char *name)
{
    struct sweepfile f;
    struct str out = { 0 };

    if (!parse(&f, text)) {
        tap_is(err.text, want, name);
        return;
    }
    for (size_t i = 0; i < f.space.n; i++)
        describe_one(&out, &f.space, i);
    tap_is(str_text(&out), want, name);
    str_clear(&out);
    sweepfile_clear(&f);
}

static void refused(const char *text, const char *cause)
{
    struct sweepfile f;
    bool ok = parse(&f, text);

    tap_ok(!ok && err.kind == ERR_INPUT && !strcmp(err.text, cause), "refused: %s",
           cause);
    if (ok)
        sweepfile_clear(&f);
    else if (strcmp(err.text, cause))
        printf("#   got: %s\n", err.text);
}

static void test_wandb(void)
{
    means("method: bayes\nparameters:\n"
          "  a: {min: 0, max: 1.5}\n  b: {min: 1, max: 8}\n  c: {value: x}\n"
          "  d: {values: [1, two, true, null, 1e-6]}\n",
          "a float 0..1.5; b int 1..8; c \"x\"; d 1|\"two\"|true|null|1e-6",
          "W&B: a distribution that is left out is inferred");
    means("method: random\nparameters:\n"
          "  a: {distribution: uniform, min: -1, max: 2}\n"
          "  b: {distribution: int_uniform, min: 2, max: 9}\n"
          "  c: {distribution: q_uniform, min: 0, max: 1, q: 0.3}\n"
          "  d: {distribution: q_uniform, min: 1, max: 100, q: 16}\n",
          "a float -1..2; b int 2..9; c float 0..0.9 step 0.3; d int 0..96 step 16",
          "W&B: uniform distributions, quantized ones at multiples of q");
    means(
        "parameters:\n"
        "  a: {distribution: log_uniform, min: -2, max: 0}\n"
        "  b: {distribution: log_uniform_values, min: 1e-6, max: 1e-4}\n"
        "  c: {distribution: inv_log_uniform, min: 0, max: 2}\n"
        "  d: {distribution: inv_log_uniform_values, min: 0.1, max: 1}\n"
        "  e: {distribution: q_log_uniform_values, min: 8, max: 512, q: 8}\n"
        "  f: {distribution: q_log_uniform, min: 0, max: 3}\n",
        "a float 0.135335..1 log; b float 1e-06..0.0001 log; c float 0.135335..1 log; "
        "d float 0.1..1 log; e int 8..512 step 8 log prior; f int 1..20 log",
        "W&B: log_uniform takes exponents of e, log_uniform_values the bounds");
    means("parameters:\n"
          "  a: {distribution: normal, mu: 10, sigma: 2}\n"
          "  b: {distribution: q_normal, mu: 10, sigma: 2, q: 0.5}\n"
          "  c: {distribution: log_normal, mu: 0, sigma: 0.2}\n"
          "  d: {distribution: q_log_normal, mu: 3, sigma: 0.1}\n"
          "  e: {distribution: beta, a: 2, b: 5}\n"
          "  f: {distribution: q_beta, a: 2, b: 5, q: 0.25}\n"
          "  g: {values: [a, b], probabilities: [0.25, 0.75]}\n",
          "a float 0..20 normal; b float 0..20 step 0.5 normal; "
          "c float 0.367879..2.71828 log normal; d int 12..33 lognormal; "
          "e float 0..1 beta; f float 0..1 step 0.25 beta; g \"a\"|\"b\" weighted",
          "W&B: normal, log-normal and beta distributions, and probabilities");
    means("parameters:\n  opt:\n    parameters:\n      lr: {min: 0.1, max: 1.0}\n"
          "      deep: {parameters: {n: {value: 3}}}\n",
          "opt.lr float 0.1..1; opt.deep.n 3",
          "W&B: nested parameters have dotted names");
    means("{\"method\": \"grid\", \"parameters\": {\"a\": {\"values\": [1, 2]}}}",
          "a 1|2", "W&B: JSON serves as well as YAML");
}

static void test_header(void)
{
    struct sweepfile f;

    tap_ok(parse(&f, "name: try\nmethod: bayes\nmetric: {name: acc, goal: maximize}\n"
                     "run_cap: 40\nprogram: t.py\n"
                     "early_terminate: {type: hyperband, max_iter: 81, s: 2, eta: 3}\n"
                     "parameters: {a: {value: 1}}\n") &&
               !strcmp(f.name, "try") && !strcmp(f.sampler, "tpe") && f.run_cap == 40 &&
               f.nmetrics == 1 && f.metrics[0].maximize &&
               !strcmp(f.pruner, "successive-halving:resource=9,reduction=3"),
           "W&B: name, method, metric, run_cap and early_terminate are read");
    sweepfile_clear(&f);
}

static void test_others(void)
{
    means(
        "[{\"bounds\":{\"min\":1e-6,\"max\":1e-4},\"name\":\"lr\",\"type\":\"double\"},"
        "{\"categorical_values\":[\"16\",\"32\"],\"name\":\"bs\","
        "\"type\":\"categorical\"}]",
        "lr float 1e-06..0.0001; bs \"16\"|\"32\"",
        "SigOpt: the example of Hugging Face's documentation");
    means("- {name: m, type: double, bounds: {min: 0, max: 1}, conditions: [{name: o,"
          " values: [sgd]}]}\n- {name: o, type: categorical, categorical_values: [sgd,"
          " adam]}\n- {name: g, type: int, grid: [1, 5]}\n"
          "- {name: l, type: double, bounds: {min: 1, max: 9}, transformation: log}\n"
          "- {name: p, type: double, bounds: {min: 0, max: 1}, precision: 2}\n",
          "o \"sgd\"|\"adam\"; g 1|5; l float 1..9 log; p float 0..1 step 0.01; "
          "m float 0..1 if o \"sgd\"",
          "SigOpt: grids, transformations, precision, and conditions in any order");
    means("{\"x\": {\"name\": \"FloatDistribution\", \"attributes\": {\"step\": null, "
          "\"low\": 1e-05, \"high\": 0.001, \"log\": true}}, \"n\": {\"name\": "
          "\"IntDistribution\", \"attributes\": {\"log\": false, \"step\": 3, \"low\": "
          "0, "
          "\"high\": 10}}, \"c\": {\"type\": \"categorical\", \"choices\": [-5, 0]}, "
          "\"o\": {\"name\": \"DiscreteUniformDistribution\", \"attributes\": "
          "{\"low\": 0, \"high\": 1, \"q\": 0.25}}}",
          "x float 1e-05..0.001 log; n int 0..9 step 3; c -5|0; o float 0..1 step 0.25",
          "Optuna: long, short and old forms; a step draws the upper bound down");
    means("lr: loguniform(1e-6, 1e-4)\nbs: choice([16, 32])\nn: tune.randint(1, 5)\n"
          "q: qrandint(1, 100, 25)\nu: quniform(0, 1, 0.1)\nd: randn(0, 1)\nseed: 7\n"
          "act: choice(['a b', \"it's\", True, None])\n",
          "lr float 1e-06..0.0001 log; bs 16|32; n int 1..4; q int 0..100 step 25; "
          "u float 0..1 step 0.1; d float -5..5 normal; seed 7; "
          "act \"a b\"|\"it's\"|true|null",
          "the short form: Ray's functions, randint without its upper end");
    means(
        "momentum: uniform(0, 1) if opt == sgd\nbeta: uniform(0, 1) if opt in [adam, "
        "lamb]\nopt: choice([sgd, adam, lamb])\nmodel:\n  depth: randint(1, 4)\n",
        "opt \"sgd\"|\"adam\"|\"lamb\"; model.depth int 1..3; "
        "momentum float 0..1 if opt \"sgd\"; beta float 0..1 if opt \"adam\" \"lamb\"",
        "the short form: conditions, parents first, and nested parameters");
}

static void test_refusals(void)
{
    char *many = xcalloc(1, 200001);

    refused("lr: loguniform(0, 1)\n",
            "s.yaml:1:5: lr: a logarithmic scale needs a lower "
            "bound above zero");
    refused("lr: uniform(2, 1)\n",
            "s.yaml:1:5: lr: the lower bound is above the upper bound");
    refused("a: 1\nlr: lognormal(2, 1)\n",
            "s.yaml:2:5: lr: unknown distribution 'lognormal'");
    refused("lr: uniform(1)\n", "s.yaml:1:5: lr: uniform takes 2 numbers, not 1");
    refused("a: choice([1, 1.0])\n", "s.yaml:1:4: a: 1 is listed twice");
    refused("a: [1, 2]\n", "s.yaml:1:4: a: a list: write uniform(1, 2), or loguniform, "
                           "for a range, choice([1, 2]) for two values");
    refused("a: uniform(0, 1) if b == 1\n",
            "s.yaml:1:4: a: depends on 'b', which is not another parameter");
    refused("a: choice([1]) if b == 1\nb: choice([1]) if a == 1\n",
            "s.yaml: parameters depend on each other in a circle");
    refused("a: uniform(0, 1) if b == 3\nb: choice([1, 2])\n",
            "s.yaml:1:4: a: 3 is no choice of 'b'");
    refused("a: 1\na: 2\n", "s.yaml:2:1: duplicate key \"a\"");
    refused(
        "'{x}': 1\n",
        "s.yaml:1:8: {x}: the name has a control character, a brace, '=' or a quote");
    refused("parameters:\n  lr:\n    distribution: log_uniform_values\n    min: 0\n"
            "    max: 1\n",
            "s.yaml:4:10: lr: a logarithmic scale needs 'min' above zero");
    refused("parameters:\n  lr: {distribution: lognormal}\n",
            "s.yaml:2:22: lr: unknown distribution 'lognormal'");
    refused("parameters:\n  lr: {min: 2, max: 1}\n",
            "s.yaml:2:7: lr: 'min' is above 'max'");
    refused(
        "parameters:\n  lr: {min: 2}\n",
        "s.yaml:2:7: lr: none of 'value', 'values', 'min' and 'max', 'distribution'");
    refused("parameters:\n  lr: {min: 2, max: 3, maxx: 4}\n",
            "s.yaml:2:30: lr: unknown key 'maxx'");
    refused("parameters:\n  a: {values: [1, 2], probabilities: [0.5, 0.6]}\n",
            "s.yaml:2:38: a: the probabilities do not add up to 1");
    refused("parameters: {a: {value: 1}}\ncommand: [\"${foo}\"]\n",
            "s.yaml:2:11: command: unknown macro '${foo}'");
    refused("parameters: {a: {value: 1}}\ncommand: [\"${program}\"]\n",
            "s.yaml:2:11: command: ${program} without a 'program'");
    refused("parameters: {a: {value: 1}}\ncommand: [x, \"-{b}\"]\n",
            "s.yaml:2:14: command: no parameter 'b'; did you mean 'a'?");
    refused("method: annealing\nparameters: {a: {value: 1}}\n",
            "s.yaml:1:9: 'method' is one of grid, random, bayes");
    refused("{\"x\": {\"name\": \"FloatDistribution\", \"attributes\": {\"low\": 0, "
            "\"high\": 1, \"log\": true}}}",
            "s.yaml:1:7: x: a logarithmic scale needs a lower bound above zero");
    refused("[{\"name\": \"a\", \"type\": \"int\", \"bounds\": {\"min\": 1.5, \"max\": "
            "2}}]",
            "s.yaml:1:2: a: the bounds and the step of integers are integers");
    refused("a: 0.9 if b == 1\nb: choice([1, 2])\n",
            "s.yaml:1:4: a: a constant with a condition: write choice([...]) if");
    refused("a: uniform (0)\n", "s.yaml:1:4: a: uniform takes 2 numbers, not 1");
    refused("parameters:\n  lr: {min: 2, max: 3, q: 2}\n",
            "s.yaml:2:27: lr: 'q' does not go with 'int_uniform'");
    refused("parameters:\n  lr: {values: [1, 2], value: 3}\n",
            "s.yaml:2:16: lr: 'values' does not go with 'constant'");
    refused("parameters: {a: {value: 1}}\nmetric: {name: m, goal: [minimize]}\n",
            "s.yaml:2:25: metric: 'goal' is minimize or maximize, not ''");
    refused("parameters: {a: {parameters: {b: {value: 1}}, min: 3}}\n",
            "s.yaml:1:52: a: unknown key 'min'");
    refused("parameters: {a: {value: 1}}\nmetric: [loss]\n",
            "s.yaml:2:9: metric: not an object");
    refused("parameters: {a: {value: 1}}\nmetrics: loss\n",
            "s.yaml:2:10: 'metrics' is not a list");
    refused("{\"x\": {\"type\": \"int\", \"low\": 0}}",
            "s.yaml:1:7: x: 'high' is missing");
    refused("{\"x\": {\"type\": \"int\", \"low\": 0, \"high\": 1, \"lgo\": true}}",
            "s.yaml:1:51: x: unknown key 'lgo'");
    refused("{\"x\": {\"type\": \"int\", \"low\": 1, \"high\": 2, \"log\": 1}}",
            "s.yaml:1:51: x: 'log' is not true or false");
    refused("{\"x\": {\"type\": \"int\", \"low\": 0, \"high\": 1}, \"y\": 3}",
            "s.yaml:1:50: y: not an object");
    refused("[{\"name\": \"a\", \"type\": \"double\", \"bounds\": {\"min\": 1}}]",
            "s.yaml:1:44: a: 'max' is missing");
    refused("[{\"name\": \"a\", \"type\": \"double\", \"bounds\": {\"min\": 1, "
            "\"max\": 2}, \"transformation\": \"logg\"}]",
            "s.yaml:1:84: a: 'transformation' is log or none");
    refused("{\"metrics\": [{\"name\": \"m\", \"objective\": \"minimise\"}], "
            "\"parameters\": []}",
            "s.yaml:1:41: m: 'objective' is minimize or maximize");
    refused("{\"linear_constraints\": [], \"parameters\": []}",
            "s.yaml:1:24: unknown key 'linear_constraints'");
    refused("a: &x {b: 1}\nc: {<<: *x}\n",
            "s.yaml:2:5: a merge key, which is not read");
    refused("a: &x [*x]\n", "s.yaml:1:4: nested too deeply");
    refused("a: 1\n---\nb: 2\n", "s.yaml: more than one document");
    /* what would take libyaml quadratic time */
    memcpy(memset(many, '[', 200000), "a: ", 3);
    refused(many, "s.yaml:1:67: nested too deeply");
    for (size_t i = 0, n = 0; i < 10000; i++)
        n += (size_t)snprintf(many + n, 13, "- &a%04zu x\n", i);
    refused(many, "s.yaml:1001:3: more than 1,000 anchors");
    free(many);
    refused("", "s.yaml: empty");
    refused("word\n", "s.yaml:1:1: not a sweep: neither an object nor a list");
}

static char *lookup(const char *name)
{
    static char there[] = "there";

    return strcmp(name, "HERE") ? NULL : there;
}

static void command_is(const char *command, const char *want)
{
    char *text =
        str_dupf("program: t.py\n%s\nparameters:\n  lr: {min: 0.0, max: 1.0}\n"
                 "  flag: {values: [true, false]}\n  w: {value: \"a 'b' $(c)\"}\n",
                 command);
    double x[3] = { 0.5, 1, 0 };
    struct str out = { 0 };
    struct sweepfile f;
    char **words;

    if (!parse(&f, text)) {
        tap_is(err.text, want, "a command is read");
        free(text);
        return;
    }
    words = sweepfile_command_new(&f, x, "p.json", lookup, &err);
    for (size_t i = 0; words && words[i]; i++) {
        str_addf(&out, "[%s]", words[i]);
        free(words[i]);
    }
    free(words);
    if (!out.len)
        str_add(&out, err.text);
    tap_ok(!strcmp(str_text(&out), want), "command: %s", want);
    if (strcmp(str_text(&out), want))
        printf("# got: %s\n", str_text(&out));
    str_clear(&out);
    sweepfile_clear(&f);
    free(text);
}

static void test_commands(void)
{
    command_is("", "[/usr/bin/env][python][t.py][--lr=0.5][--flag=False]"
                   "[--w=a 'b' $(c)]");
    command_is("command: [x, \"${args_no_boolean_flags}\", \"${args_no_hyphens}\"]",
               "[x][--lr=0.5][--w=a 'b' $(c)][lr=0.5][flag=False][w=a 'b' $(c)]");
    command_is(
        "command: [\"at=${envvar:HERE}\", \"${args_json_file}\", \"${args_json}\"]",
        "[at=there][p.json]"
        "[{\"lr\": 0.5, \"flag\": false, \"w\": \"a 'b' $(c)\"}]");
    command_is("command: [\"{w}{wide}{größe}\"]",
               "s.yaml:2:11: command: no parameter 'wide'; the nearest is 'w'");
    command_is("command: [\"{w}{a b}{größe}\"]", "[a 'b' $(c){a b}{größe}]");
    command_is("command: [\"${envvar:NOWHERE}\"]",
               "the command needs the variable NOWHERE, which is not set");
}

/* Draw every number of trials from N points of a sampler. */
static void test_draws(void)
{
    static const char *const specs[] = { "random", "qmc",     "qmc:sequence=halton",
                                         "tpe",    "nsga-ii", "cma-es",
                                         "gp" };
    struct sweepfile f;

    parse(&f, "opt: choice([sgd, adam])\nm: uniform(0.5, 1) if opt == sgd\n"
              "n: randint(1, 9)\nlr: loguniform(1e-5, 1)\nz: randn(0, 1)\n");
    for (size_t s = 0; s < sizeof(specs) / sizeof(*specs); s++) {
        struct sampler_choice c;
        struct history h;
        bool inside = true, same = true;
        double x[5], again[5], fixed[5] = { 1, NAN, 3, NAN, NAN };
        struct sampler_note note;

        choose_sampler(&c, specs[s]);
        history_init(&h, f.space.n, 1);
        for (int i = 0; i < 60; i++) {
            struct past *t;

            sampler_draw(x, &note, &c, &f.space, &h, 5, i, NULL);
            sampler_draw(again, &note, &c, &f.space, &h, 5, i, NULL);
            for (size_t k = 0; k < f.space.n; k++) {
                same &= x[k] == again[k] || (isnan(x[k]) && isnan(again[k]));
                inside &= space_active(&f.space, x, k)
                              ? dist_contains(&f.space.params[k].dist, x[k])
                              : isnan(x[k]);
            }
            t = history_add(&h, i, PAST_COMPLETE);
            memcpy(t->x, x, sizeof(x));
            t->loss[0] = x[2] * x[2] + x[4];
            t->generation = note.generation;
        }
        tap_ok(inside, "%s draws points of the space, conditions respected", specs[s]);
        tap_ok(same, "%s draws the same point again for the same trial", specs[s]);
        sampler_draw(x, &note, &c, &f.space, &h, 5, 60, fixed);
        tap_ok(x[0] == 1 && isnan(x[1]) && x[2] == 3, "%s keeps fixed parameters",
               specs[s]);
        history_clear(&h);
    }
    sweepfile_clear(&f);
}

static void test_steps(void)
{
    struct sweepfile f;

    parse(&f,
          "a: qrandn(0, 1, 0.2)\nb: quniform(0, 1e6, 1e-9)\nc: quniform(0, 1, 0.3)\n"
          "d: quniform(0.6, 1, 0.2)\n");
    tap_ok(dist_nth(&f.space.params[0].dist, 24) == -0.2 &&
               dist_nth(&f.space.params[1].dist, 1) == 1e-9,
           "multiples of a step are as exact as their bounds");
    tap_ok(f.space.params[2].dist.high == 0.9 &&
               space_nearest(&f.space.params[2].dist, 0.95) == 0.9 &&
               f.space.params[3].dist.low == 0.6,
           "and so are the bounds");
    sweepfile_clear(&f);
}

static void test_grid(void)
{
    struct sweepfile f;
    struct sampler_choice c;
    struct history h;
    double x[4];
    struct sampler_note note;
    int n;
    struct str out = { 0 };

    parse(&f, "opt: choice([sgd, adam])\nm: quniform(0, 0.2, 0.1) if opt == sgd\n"
              "n: randint(1, 3)\n");
    choose_sampler(&c, "grid");
    tap_ok(sampler_check(&c, &f.space, 1, &err) == 0 && space_size(&f.space) == 8,
           "a grid's points are counted with its conditions");
    history_init(&h, f.space.n, 1);
    memcpy(history_add(&h, 0, PAST_COMPLETE)->x, (double[]){ 0, 0.1, 2 },
           3 * sizeof(*x));
    for (n = 1; sampler_draw(x, &note, &c, &f.space, &h, 0, n, NULL); n++) {
        struct str one = { 0 };

        memcpy(history_add(&h, n, PAST_FAILED)->x, x, 3 * sizeof(*x));
        sweepfile_write_params(&one, &f.space, x);
        str_addf(&out, "%s\n", one.s);
        str_clear(&one);
    }
    tap_is(str_text(&out),
           "{\"opt\": \"sgd\", \"m\": 0.0, \"n\": 2}\n"
           "{\"opt\": \"sgd\", \"m\": 0.1, \"n\": 1}\n"
           "{\"opt\": \"sgd\", \"m\": 0.0, \"n\": 1}\n"
           "{\"opt\": \"sgd\", \"m\": 0.2, \"n\": 1}\n"
           "{\"opt\": \"sgd\", \"m\": 0.2, \"n\": 2}\n"
           "{\"opt\": \"adam\", \"n\": 1}\n{\"opt\": \"adam\", \"n\": 2}\n",
           "trial N tries point N of the grid, or the first that is not taken");
    str_clear(&out);
    history_clear(&h);
    sweepfile_clear(&f);
    parse(&f, "x: uniform(0, 1)\n");
    tap_ok(sampler_check(&c, &f.space, 1, &err) < 0 && err.kind == ERR_USAGE,
           "a grid over a continuous parameter is refused: %s", err.text);
    sweepfile_clear(&f);
}

static void test_distinct(void)
{
    struct sweepfile f;
    struct sampler_choice c;
    struct history h;
    double x[2];
    struct sampler_note note;
    int n;
    bool fresh = true;

    parse(&f, "a: choice([1, 2, 3])\nb: randint(0, 4)\n");
    choose_sampler(&c, "tpe");
    c.distinct = true;
    history_init(&h, 2, 1);
    for (n = 0; sampler_draw(x, &note, &c, &f.space, &h, 0, n, NULL); n++) {
        struct past *t;

        fresh &= !history_has(&h, x);
        t = history_add(&h, n, PAST_COMPLETE);
        memcpy(t->x, x, sizeof(x));
        t->loss[0] = x[0] + x[1];
    }
    tap_ok(fresh && n == 12, "distinct draws try each of 12 points once, then end");
    history_clear(&h);
    sweepfile_clear(&f);
}

/* Points with x > 0.3 violate a constraint, and the loss falls with x. */
static void test_constraints(void)
{
    static const char *const specs[] = { "tpe", "nsga-ii:population=20",
                                         "gp:fitted=60" };
    struct sweepfile f;

    parse(&f, "x: uniform(0, 1)\ny: uniform(0, 1)\n");
    for (size_t s = 0; s < sizeof(specs) / sizeof(*specs); s++) {
        struct sampler_choice c;
        struct history h;
        double x[2], best = 0;
        struct sampler_note note;
        int feasible = 0;

        choose_sampler(&c, specs[s]);
        history_init(&h, 2, 1);
        for (int i = 0; i < 200; i++) {
            struct past *t;

            sampler_draw(x, &note, &c, &f.space, &h, 3, i, NULL);
            t = history_add(&h, i, PAST_COMPLETE);
            memcpy(t->x, x, sizeof(x));
            t->loss[0] = -x[0] + x[1];
            t->violation = fmax(0, x[0] - 0.3);
            t->generation = note.generation;
            feasible += i >= 100 && x[0] <= 0.3;
            if (x[0] <= 0.3)
                best = fmin(best, t->loss[0]);
        }
        /* by chance 30, and the best is on the boundary */
        tap_ok(feasible > 35, "%s learns to stay feasible: %d of the last 100",
               specs[s], feasible);
        tap_ok(best < -0.15, "and comes near the boundary's best, -0.3: %g", best);
        history_clear(&h);
    }
    sweepfile_clear(&f);
}

/* The least of (x - 0.3)^2 + (log10(lr) + 3)^2 / 9 and a penalty for b, in 30 trials.
 */
static void test_gp(void)
{
    struct sampler_choice c;
    struct sweepfile f;
    struct history h;
    double x[4], least = INFINITY, first[4];
    struct sampler_note note;

    parse(&f, "x: uniform(0, 1)\nlr: loguniform(1e-5, 1)\nb: choice([p, q])\n"
              "m: randint(0, 5) if b == q\n");
    choose_sampler(&c, "gp");
    history_init(&h, f.space.n, 1);
    for (int i = 0; i < 30; i++) {
        double log_rate;
        struct past *t;

        sampler_draw(x, &note, &c, &f.space, &h, 2, i, NULL);
        t = history_add(&h, i, PAST_COMPLETE);
        memcpy(t->x, x, sizeof(x));
        log_rate = log10(x[1]) + 3;
        t->loss[0] = (x[0] - 0.3) * (x[0] - 0.3) + log_rate * log_rate / 9 +
                     (x[2] > 0 ? 0.1 * fabs(x[3] - 2) : 0.05);
        least = fmin(least, t->loss[0]);
    }
    tap_ok(least < 1e-3, "gp finds the least of a smooth function: %g after 30 trials",
           least);
    sampler_draw(first, &note, &c, &f.space, &h, 2, 30, NULL);
    memcpy(history_add(&h, 30, PAST_RUNNING)->x, first, sizeof(first));
    sampler_draw(x, &note, &c, &f.space, &h, 2, 31, NULL);
    tap_ok(x[0] != first[0] || x[1] != first[1], "and tries not what runs already");
    for (size_t i = 0; i < h.n; i++)
        h.trials[i].loss[0] = i % 2 ? INFINITY : 1;
    tap_ok(sampler_draw(x, &note, &c, &f.space, &h, 2, 32, NULL) == 1 &&
               dist_contains(&f.space.params[0].dist, x[0]),
           "infinite and equal losses are borne");
    history_clear(&h);
    sweepfile_clear(&f);
}

/* Parts that can be told by hand: of 4 x + 2 y + 3 [c = q] with c one of three, the
 * variances are 16/12, 4/12 and 9 * 2/9. */
static void test_fanova(void)
{
    struct sampler_choice c;
    struct sweepfile f;
    struct history h;
    double x[4], out[4], all = 16.0 / 12 + 4.0 / 12 + 2;
    struct sampler_note note;

    parse(&f, "x: uniform(0, 1)\ny: loguniform(1, 100)\nc: choice([p, q, r])\n"
              "z: randint(0, 9)\n");
    choose_sampler(&c, "qmc");
    history_init(&h, f.space.n, 1);
    for (int i = 0; i < 512; i++) {
        struct past *t;

        sampler_draw(x, &note, &c, &f.space, &h, 1, i, NULL);
        t = history_add(&h, i, PAST_COMPLETE);
        memcpy(t->x, x, sizeof(x));
        t->loss[0] = 4 * x[0] + log10(x[1]) + 3 * (x[2] == 1);
    }
    history_add(&h, 512, PAST_COMPLETE)->loss[0] = INFINITY;
    fanova_importance(out, &h, &f.space);
    tap_ok(fabs(out[0] - 16.0 / 12 / all) < 0.02 &&
               fabs(out[1] - 4.0 / 12 / all) < 0.02 && fabs(out[2] - 2 / all) < 0.02 &&
               out[3] < 0.01,
           "fanova parts the variance: %.3f %.3f %.3f %.3f", out[0], out[1], out[2],
           out[3]);
    history_clear(&h);
    sweepfile_clear(&f);
}

/* A number that never changes explains nothing, whatever the losses are. */
static void test_fanova_constant(void)
{
    struct sweepfile f;
    struct history h;
    double out[2];

    parse(&f, "x: uniform(0, 1)\nz: uniform(0, 1)\n");
    history_init(&h, f.space.n, 1);
    for (int i = 0; i < 128; i++) {
        struct past *t = history_add(&h, i, PAST_COMPLETE);

        t->x[0] = i % 8 / 8.0;
        t->x[1] = 0.3;
        t->loss[0] = i * 37 % 101 + i % 8;
    }
    fanova_importance(out, &h, &f.space);
    tap_ok(out[0] == 1 && out[1] == 0, "what never changes has no importance: %g %g",
           out[0], out[1]);
    history_clear(&h);
    sweepfile_clear(&f);
}

/* Many parameters: the diagonal alone is learnt, and a draw takes no time to speak of.
 */
static void test_many(void)
{
    enum { N = 300, TRIALS = 800 };
    struct str text = { 0 };
    struct sampler_choice c;
    struct sweepfile f;
    struct history h;
    double x[N], early = 0, late = 0;
    struct sampler_note note;

    for (int i = 0; i < N; i++)
        str_addf(&text, "p%d: uniform(-5, 5)\n", i);
    parse(&f, text.s);
    choose_sampler(&c, "cma-es");
    history_init(&h, N, 1);
    for (int i = 0; i < TRIALS; i++) {
        struct past *t;

        sampler_draw(x, &note, &c, &f.space, &h, 1, i, NULL);
        t = history_add(&h, i, PAST_COMPLETE);
        memcpy(t->x, x, sizeof(x));
        t->generation = note.generation;
        for (int k = 0; k < N; k++)
            t->loss[0] += (1 + k % 9) * (x[k] - 1) * (x[k] - 1);
        early += i < 100 ? t->loss[0] / 100 : 0;
        late += i >= TRIALS - 100 ? t->loss[0] / 100 : 0;
    }
    tap_ok(late < 0.75 * early, "cma-es learns %d parameters: loss %.0f, then %.0f", N,
           early, late);
    history_clear(&h);
    sweepfile_clear(&f);
    str_clear(&text);
}

/* The draws of two samplers from the same random history of 30 trials. */
static bool draws_agree(const char *text, const char *one, const char *other)
{
    struct sampler_choice a, b;
    struct sweepfile f;
    struct history h;
    double x[8], y[8];
    bool same = true;
    struct sampler_note note;

    parse(&f, text);
    choose_sampler(&a, "random");
    history_init(&h, f.space.n, 1);
    for (int i = 0; i < 30; i++) {
        struct past *t;

        sampler_draw(x, &note, &a, &f.space, &h, 4, i, NULL);
        t = history_add(&h, i, PAST_COMPLETE);
        memcpy(t->x, x, f.space.n * sizeof(*x));
        t->loss[0] = cos(3.0 * i);
    }
    choose_sampler(&a, one);
    choose_sampler(&b, other);
    for (uint64_t seed = 0; seed < 20; seed++) {
        sampler_draw(x, &note, &a, &f.space, &h, seed, 30, NULL);
        sampler_draw(y, &note, &b, &f.space, &h, seed, 30, NULL);
        for (size_t k = 0; k < f.space.n; k++)
            same &= x[k] == y[k] || (isnan(x[k]) && isnan(y[k]));
    }
    history_clear(&h);
    sweepfile_clear(&f);
    return same;
}

static void test_groups(void)
{
    static const char *const flat = "a: uniform(0, 1)\nb: uniform(0, 1)\n";
    static const char *const alone = "c: choice([p, q])\na: uniform(0, 1) if c == p\n";
    static const char *const branch = "c: choice([p, q])\na: uniform(0, 1) if c == p\n"
                                      "b: uniform(0, 1) if c == p\n";

    tap_ok(draws_agree(flat, "tpe", "tpe:group=yes"),
           "without conditions tpe draws as with group=yes");
    tap_ok(draws_agree(alone, "tpe", "tpe:group=yes"),
           "and where each branch has one parameter");
    tap_ok(!draws_agree(branch, "tpe", "tpe:group=yes"),
           "but a branch's parameters are drawn together by group=yes alone");
}

/* Trials whose check failed before they ran teach the estimator as well. */
static void test_failed_check(void)
{
    struct sweepfile f;
    struct sampler_choice c;
    struct history h;
    double x[1];
    struct sampler_note note;
    int feasible = 0;

    parse(&f, "x: uniform(0, 1)\n");
    choose_sampler(&c, "tpe");
    history_init(&h, 1, 1);
    for (int i = 0; i < 120; i++) {
        struct past *t;

        sampler_draw(x, &note, &c, &f.space, &h, 3, i, NULL);
        t = history_add(&h, i, x[0] > 0.4 ? PAST_FAILED : PAST_COMPLETE);
        t->x[0] = x[0];
        t->loss[0] = -x[0];
        t->violation = x[0] > 0.4;
        feasible += i >= 60 && x[0] <= 0.4;
    }
    tap_ok(feasible > 30, "tpe keeps away from what failed its check: %d of 60",
           feasible);
    history_clear(&h);
    sweepfile_clear(&f);
}

/* ---- what draws follow from ---- */

/* A history of one parameter between 0 and 1, and how its next draws fall. */
struct learned {
    struct sweepfile f;
    struct sampler_choice c;
    struct history h;
};

static void begin_learning(struct learned *l, const char *sampler, const char *space)
{
    parse(&l->f, space);
    choose_sampler(&l->c, sampler);
    history_init(&l->h, 1, 1);
}

static struct past *add(struct learned *l, enum past_state state, double x, double loss)
{
    struct past *t = history_add(&l->h, (int)l->h.n, state);

    t->x[0] = x;
    t->loss[0] = loss;
    return t;
}

/* The share of 100 draws that are within 0.1 of X. */
static double share_near(const struct learned *l, double x)
{
    struct sampler_note note;
    int near = 0;
    double at;

    for (uint64_t seed = 0; seed < 100; seed++) {
        sampler_draw(&at, &note, &l->c, &l->f.space, &l->h, seed, (int)l->h.n, NULL);
        near += fabs(at - x) < 0.1;
    }
    return near / 100.0;
}

static void end_learning(struct learned *l)
{
    history_clear(&l->h);
    sweepfile_clear(&l->f);
}

/* N trials, the best at 0.2 and the next best at 0.8; the others at OTHERS. */
static void add_trials(struct learned *l, int n, double others)
{
    add(l, PAST_COMPLETE, 0.2, 0);
    add(l, PAST_COMPLETE, 0.8, 0.001);
    for (int i = 2; i < n; i++)
        add(l, PAST_COMPLETE, others + 0.002 * i, 1 + i);
}

static void test_learning(void)
{
    static const char *const space = "x: uniform(0, 1)\n";
    struct learned l;
    double left, right;

    begin_learning(&l, "tpe", space);
    add_trials(&l, 20, 0.78);
    right = share_near(&l, 0.8);
    tap_ok(right < 0.1, "tpe avoids where bad trials are, though a good one is: %g",
           right);
    end_learning(&l);

    begin_learning(&l, "tpe", space);
    add_trials(&l, 19, 0.48);
    right = share_near(&l, 0.8);
    tap_ok(right > 0.15, "the best tenth is rounded up: %g near the second", right);
    for (int i = 0; i < 8; i++)
        add(&l, PAST_RUNNING, 0.78 + 0.005 * i, 0);
    left = share_near(&l, 0.8);
    tap_ok(left < right / 2, "what runs near it is avoided: %g", left);
    end_learning(&l);

    begin_learning(&l, "tpe", space);
    for (int i = 0; i < 20; i++) {
        struct past *t = add(&l, PAST_PRUNED, i < 2 ? 0.2 : 0.8, 0);

        t->last_step = i < 2 ? 10 : 1;
        t->last_loss = 1;
    }
    left = share_near(&l, 0.2);
    tap_ok(left > 0.8, "pruned trials that went farther are better: %g near them",
           left);
    end_learning(&l);

    begin_learning(&l, "gp", space);
    for (int i = 0; i < 12; i++)
        add(&l, PAST_COMPLETE, (i + 0.5) / 12, (i / 12.0 - 0.3) * (i / 12.0 - 0.3));
    left = share_near(&l, 0.3);
    tap_ok(left > 0.9, "gp draws where the loss is least: %g near it", left);
    end_learning(&l);

    begin_learning(&l, "gp", "x: randint(0, 12)\n");
    for (int i = 0; i < 13; i++)
        if (i != 7)
            add(&l, PAST_COMPLETE, i, (i - 7) * (i - 7));
    left = share_near(&l, 7);
    tap_ok(left > 0.9, "and of whole numbers the one between the best: %g", left);
    end_learning(&l);
}

int main(void)
{
#ifndef HAVE_YAML
    tap_skip("sweep files are read", "built without YAML");
    return tap_done();
#endif
    test_wandb();
    test_header();
    test_others();
    test_refusals();
    test_commands();
    test_draws();
    test_steps();
    test_grid();
    test_distinct();
    test_constraints();
    test_failed_check();
    test_groups();
    test_fanova();
    test_fanova_constant();
    test_gp();
    test_many();
    test_learning();
    return tap_done();
}
