/* planrequests - plan's options about requests, and what it prints of them */
#include "cmd/mem-estimate/planrequests.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

enum { PROMPT = 1024, OUTPUT = 256 }; /* tokens, where one of them is given */

/* "500ms", "1.5s", "2": seconds. */
static int parse_time(double *out, const char *option, const char *text,
                      struct err *err)
{
    if (text && (!str_duration(text, out) || *out <= 0))
        return err_set(err, ERR_USAGE, "%s %s: no time such as 500ms or 1.5s", option,
                       text);
    return 0;
}

int serving_set(struct planner_options *p, struct request_options *o,
                const struct serving_options *s, bool train, struct err *err)
{
    bool served = s->prompt || s->output;

    if (train && (served || s->requests || s->first || s->next))
        return err_set(err, ERR_USAGE,
                       "--prompt-tokens, --output-tokens, --requests, --ttft and --itl "
                       "are of inference");
    if (!served && (s->first || s->next))
        return err_set(err, ERR_USAGE,
                       "--ttft and --itl: are of requests (--prompt-tokens)");
    if (s->requests && o->global_batch)
        return err_set(err, ERR_USAGE, "--requests and --global-batch: one of them");
    if (s->requests)
        o->global_batch = s->requests;
    if (!served)
        return 0;
    p->requests.tokens = (uint64_t)(s->prompt ? s->prompt : PROMPT);
    p->requests.output = (uint64_t)(s->output ? s->output : OUTPUT);
    if (o->seq_given && o->seq < p->requests.tokens + p->requests.output)
        return err_set(err, ERR_USAGE,
                       "--seq %" PRIu64 ": a request has %" PRIu64
                       " tokens of prompt and %" PRIu64 " more",
                       o->seq, p->requests.tokens, p->requests.output);
    if (!o->seq_given)
        o->seq = p->requests.tokens + p->requests.output;
    o->seq_given = true;
    if (parse_time(&p->requests.first, "--ttft", s->first, err) < 0 ||
        parse_time(&p->requests.next, "--itl", s->next, err) < 0)
        return -1;
    return 0;
}

const struct column serving_columns[] = {
    { "batch", 1, 9, true, 0, false },    { "GiB", 1, 7, true, 0, false },
    { "first ms", 1, 9, true, 0, false }, { "next ms", 1, 8, true, 0, false },
    { "tokens/s", 1, 9, true, 1, false }, { "a device", 1, 9, true, 0, false },
    { "fit", 1, 8, true, 2, false },
};

void serving_add_row(struct table *t, const struct planned *p,
                     const struct planner_options *o)
{
    table_addf(t, "%" PRIu64 " x %" PRIu64, p->micro_batch, p->micro_batches);
    table_addf(t, "%.2f", (double)p->memory / 1024 / 1024 / 1024);
    table_addf(t, "%.4g", 1e3 * p->times.first);
    table_addf(t, "%.4g", 1e3 * p->times.next);
    table_addf(t, "%.4g", p->tokens);
    table_addf(t, "%.4g", p->tokens / o->gpus);
    table_addf(t, "%" PRIu64, p->most);
}

/* "within 500 ms" or "more than the 500 ms that are wanted". */
static void print_aim(const char *what, double is, double wanted)
{
    printf("%s%s %.4g ms", what, wanted > 0 ? "," : "", 1e3 * is);
    if (wanted > 0)
        printf(is <= wanted ? " of %.4g wanted" : " where %.4g are wanted",
               1e3 * wanted);
}

void serving_print(const struct planned *p, const struct planner_options *o)
{
    print_aim("of the first: first token", p->times.first, o->requests.first);
    print_aim("; between tokens", p->times.next, o->requests.next);
    printf("; %.4g tokens/s a request\n", 1 / p->times.next);
    printf("%" PRIu64 " requests of %" PRIu64 " tokens fit%s\n", p->most, o->start.seq,
           p->late > 1 ? "; no layout is as fast as wanted" : "");
}

void serving_add_json(struct str *out, const struct planned *p,
                      const struct planner_options *o)
{
    const struct {
        const char *key;
        double value;
    } numbers[] = { { "ttft", p->times.first },
                    { "itl", p->times.next },
                    { "tokens_per_second_request", 1 / p->times.next },
                    { "tokens_per_second_device", p->tokens / o->gpus } };

    str_addf(out,
             ",\"prompt_tokens\":%" PRIu64 ",\"output_tokens\":%" PRIu64
             ",\"requests\":%" PRIu64,
             o->requests.tokens, o->requests.output, o->global_batch);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        str_addf(out, ",\"%s\":", numbers[i].key);
        str_add_double(out, numbers[i].value);
    }
    str_addf(out, ",\"requests_fit\":%" PRIu64 ",\"meets\":%s", p->most,
             p->late > 1 ? "false" : "true");
}
