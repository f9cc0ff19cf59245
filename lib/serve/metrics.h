/* metrics - what a server has done, in Prometheus' text format 0.0.4
 *
 * The names, types and units are vLLM's, so that dashboards and autoscalers made for it
 * read them.  One thread sets numbers while others print them. */
#ifndef LIB_SERVE_METRICS_H
#define LIB_SERVE_METRICS_H

#include <stddef.h>

#include "lib/base/str.h"

/* ROW(NAME, name, type, buckets, labels, help): rows of one name follow each other. */
#define METRICS(ROW)                                                                \
    ROW(RUNNING, "num_requests_running", GAUGE, NULL, "", "Answers in generation.") \
    ROW(WAITING, "num_requests_waiting", GAUGE, NULL, "", "Answers that wait.")     \
    ROW(CACHE_USAGE, "kv_cache_usage_perc", GAUGE, NULL, "",                        \
        "Part of the KV cache that answers hold, of 1.")                            \
    ROW(PREFIX_QUERIES, "prefix_cache_queries_total", COUNTER, NULL, "",            \
        "Tokens of prompts that might have been shared.")                           \
    ROW(PREFIX_HITS, "prefix_cache_hits_total", COUNTER, NULL, "",                  \
        "Tokens of prompts that were.")                                             \
    ROW(PREEMPTIONS, "num_preemptions_total", COUNTER, NULL, "",                    \
        "Answers that were set back.")                                              \
    ROW(PROMPT_TOKENS, "prompt_tokens_total", COUNTER, NULL, "",                    \
        "Tokens of prompts of answers that began.")                                 \
    ROW(GENERATION_TOKENS, "generation_tokens_total", COUNTER, NULL, "",            \
        "Tokens that were generated.")                                              \
    ROW(SUCCESS_STOP, "request_success_total", COUNTER, NULL,                       \
        ",finished_reason=\"stop\"", "Answers that ended.")                         \
    ROW(SUCCESS_LENGTH, "request_success_total", COUNTER, NULL,                     \
        ",finished_reason=\"length\"", "")                                          \
    ROW(SUCCESS_ABORT, "request_success_total", COUNTER, NULL,                      \
        ",finished_reason=\"abort\"", "")                                           \
    ROW(FIRST_TOKEN, "time_to_first_token_seconds", HISTOGRAM, short_times, "",     \
        "From a request's coming to its first token.")                              \
    ROW(BETWEEN_TOKENS, "inter_token_latency_seconds", HISTOGRAM, short_times, "",  \
        "Between two tokens of an answer.")                                         \
    ROW(LATENCY, "e2e_request_latency_seconds", HISTOGRAM, long_times, "",          \
        "From a request's coming to its last token.")                               \
    ROW(QUEUE_TIME, "request_queue_time_seconds", HISTOGRAM, long_times, "",        \
        "From a request's coming to its submission.")                               \
    ROW(PREFILL_TIME, "request_prefill_time_seconds", HISTOGRAM, long_times, "",    \
        "From then to the first token.")                                            \
    ROW(DECODE_TIME, "request_decode_time_seconds", HISTOGRAM, long_times, "",      \
        "From then to the last token.")                                             \
    ROW(REQUEST_PROMPT, "request_prompt_tokens", HISTOGRAM, sizes, "",              \
        "Tokens of a request's prompts.")                                           \
    ROW(REQUEST_TOKENS, "request_generation_tokens", HISTOGRAM, sizes, "",          \
        "Tokens of its answers.")                                                   \
    ROW(STEP_TOKENS, "iteration_tokens_total", HISTOGRAM, sizes, "",                \
        "Tokens of a step.")

enum metric {
#define ROW(NAME, name, type, buckets, labels, help) METRIC_##NAME,
    METRICS(ROW)
#undef ROW
        METRIC_COUNT
};

struct metrics;
struct metrics *metrics_new(void);
void metrics_free(struct metrics *m);
/* A gauge, or the total of a counter. */
void metrics_set(struct metrics *m, enum metric which, double x);
/* A counter. */
void metrics_add(struct metrics *m, enum metric which, double x);
/* A histogram. */
void metrics_observe(struct metrics *m, enum metric which, double x);
/* Appends all, of the model MODEL. */
void metrics_print(struct metrics *m, const char *model, struct str *out);

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

#endif
