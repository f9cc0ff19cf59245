/* estimate - the commands infer and train */
#include <stdlib.h>

#include "cmd/mem-estimate/mem-estimate.h"
#include "cmd/picture.h"

/* The options of both commands beside the request. */
struct output_options {
    bool json, explain;
    const char *plot;
    const char *command; /* as given, for a page */
};

#define OUTPUT_OPTIONS(o)                                                             \
    { OPT_FLAG, '\0', "json", &(o).json, NULL, "print one JSON object", NULL, NULL }, \
        { OPT_FLAG, '\0', "explain", &(o).explain, NULL, NULL, NULL, NULL },          \
        { OPT_DOUBLE, '\0', "margin", &r.margin, "PERCENT", NULL, NULL, NULL },       \
    {                                                                                 \
        OPT_STRING, '\0', "plot", &(o).plot, "FILE", NULL, NULL, NULL                 \
    }

static int estimate(const struct cmd *cmd, const struct request_options *options,
                    const struct output_options *out, bool train, const char *path)
{
    struct request request;
    struct memory_estimate e = { 0 };
    struct report report = { .request = &request, .fits = true };
    struct err err = { 0 };
    char *obstacles, *ways = NULL, *explanation = NULL;
    int status = 0;

    if (out->plot && (status = picture_check(cmd, "--plot", out->plot)) != 0)
        return status;
    if (request_open(&request, cmd, options, train, path, &err) < 0)
        return cmd_fail(cmd, &err);
    obstacles = request_obstacles_dup(&request);
    report.obstacles = obstacles;
    if (*obstacles) {
        report.fits = false;
    } else if (request_estimate(&request, &e, &err) < 0) {
        status = cmd_fail(cmd, &err);
        goto out;
    } else {
        report.estimate = &e;
        report.fits = request_fits(&request, &e);
        report.tight = request_is_tight(&request, &e);
        if (!train && request.gpu_memory && report.fits)
            report.requests = requests_most(&request);
    }
    if (report.estimate && !report.fits)
        report.ways_out = ways = ways_out_dup(&request);
    if (out->explain)
        report.explanation = explanation = report_explanation_dup(&report);
    if (out->json)
        report_json(&report);
    else
        report_text(&report);
    if (out->plot && report.estimate &&
        report_plot(&report, out->plot, out->command, &err) < 0)
        status = cmd_fail(cmd, &err);
    else
        status = cmd_finish(cmd, report.fits ? EXIT_SUCCESS : EXIT_FAILURE);
out:
    free(obstacles);
    free(ways);
    free(explanation);
    memory_estimate_clear(&e);
    request_close(&request);
    return status;
}

int infer_main(const char *program, int argc, char **argv)
{
    struct request_options r = REQUEST_DEFAULTS;
    struct output_options out = { .command = picture_command(program, argc, argv) };
    const struct opt opts[] = {
        REQUEST_OPTIONS(r),
        REQUEST_INFER_OPTIONS(r),
        REQUEST_ROW(OPT_COUNT, "cache-tokens", &r.cache_tokens, "N", NULL, NULL, NULL),
        REQUEST_ROW(OPT_COUNT, "threads", &r.threads, "N", NULL, NULL, NULL),
        REQUEST_ROW(OPT_CHOICE, "backend", &r.backend, "NAME", NULL, backend_names,
                    &r.backend_given),
        OUTPUT_OPTIONS(out),
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "infer",
        .program = program,
        .synopsis = "[OPTION]... MODEL",
        .summary = "Predict the memory that each rank needs to run MODEL",
        .opts = opts,
        .min_args = 1,
        .max_args = 1,
    };
    char **operand = cmd_parse(&cmd, argc, argv);
    int n;

    r.gpu = request_gpu_name(r.gpu, &n);
    if (n > 1)
        return cmd_usage(&cmd, "--gpu: is one device, of which --tp %d shares a model",
                         n);
    return estimate(&cmd, &r, &out, false, operand[0]);
}

int train_main(const char *program, int argc, char **argv)
{
    struct request_options r = REQUEST_DEFAULTS;
    struct output_options out = { .command = picture_command(program, argc, argv) };
    const struct opt opts[] = {
        REQUEST_OPTIONS(r),
        REQUEST_TRAIN_OPTIONS(r),
        { OPT_COUNT, '\0', "etp", &r.etp, "N", NULL, NULL, NULL },
        { OPT_COUNT, '\0', "gpus", &r.gpus, "N", NULL, NULL, NULL },
        REQUEST_ROW(OPT_COUNT, "threads", &r.threads, "N", NULL, NULL, NULL),
        OUTPUT_OPTIONS(out),
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "train",
        .program = program,
        .synopsis = "[OPTION]... MODEL",
        .summary = "Predict the memory that each rank needs to train MODEL",
        .opts = opts,
        .min_args = 1,
        .max_args = 1,
    };
    char **operand = cmd_parse(&cmd, argc, argv);
    int n;

    r.gpu = request_gpu_name(r.gpu, &n);
    if (n && r.gpus && n != r.gpus)
        return cmd_usage(&cmd, "--gpus %d contradicts --gpu %dx%s", r.gpus, n, r.gpu);
    if (n)
        r.gpus = n;
    return estimate(&cmd, &r, &out, true, operand[0]);
}
