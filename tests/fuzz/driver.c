/* driver - runs a fuzz target: over its corpus, and on changed copies of it
 *
 *   fuzz-NAME FILE...                the inputs as they are (TAP)
 *   fuzz-NAME --seconds N [--runs N] [--seed N] FILE...
 *                                    then changed copies for N processor seconds, or
 *                                    up to so many; the same with the same seed
 *
 * The targets have libFuzzer's entry point: where clang has that engine, it runs them.
 * An input that crashes is left in crash-NAME. */
#ifndef LIBFUZZER /* has a main of its own */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/rng.h"
#include "lib/base/str.h"
#include "tests/tap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_BYTES = 1 << 16, MOST_CHANGES = 8 };

struct input {
    char *bytes;
    size_t n;
};

/* What is being run, for the handler of its crash. */
static struct input now;
static const char *target;

static void save_crash(void)
{
    char name[128];
    int fd;

    snprintf(name, sizeof(name), "crash-%s", target);
    fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd >= 0 && write(fd, now.bytes, now.n) == (ssize_t)now.n)
        close(fd);
}

static void on_crash(int sig)
{
    save_crash();
    signal(sig, SIG_DFL);
    raise(sig);
}

static void run(struct input in)
{
    /* exactly as long as it is, so that reading beyond is seen */
    uint8_t *copy = xmalloc(in.n + !in.n);

    memcpy(copy, in.bytes, in.n);
    now = in;
    LLVMFuzzerTestOneInput(copy, in.n);
    free(copy);
}

/* One change to OUT: a bit, a byte, a stretch left out, doubled, or taken from OTHER, a
 * number. */
static void change(struct rng *r, struct str *out, const struct input *other)
{
    static const char *const bits[] = { "0",          "-1",     "18446744073709551615",
                                        "4294967296", "\"",     "{",
                                        "[",          "]",      "}",
                                        ":",          ",",      "null",
                                        "1e999",      "\\u0000" };
    size_t at = out->len ? rng_below(r, out->len) : 0;
    size_t n = out->len ? rng_below(r, out->len - at < 64 ? out->len - at : 64) + 1 : 0;
    struct str old = *out;

    if (n > old.len - at)
        n = old.len - at;
    *out = (struct str){ 0 };
    str_addn(out, str_text(&old), at);
    switch (rng_below(r, 6)) {
    case 0:
        if (at < old.len)
            str_addc(out, (char)(old.s[at] ^ 1 << rng_below(r, 8)));
        n = at < old.len;
        break;
    case 1:
        str_addc(out, (char)rng_below(r, 256));
        n = 0;
        break;
    case 2: /* left out */
        break;
    case 3:
        str_addn(out, str_text(&old) + at, n);
        n = 0;
        break;
    case 4:
        if (other->n) {
            size_t from = rng_below(r, other->n);

            str_addn(out, other->bytes + from, rng_below(r, other->n - from) + 1);
        }
        break;
    default:
        str_add(out, bits[rng_below(r, sizeof(bits) / sizeof(*bits))]);
        break;
    }
    str_addn(out, str_text(&old) + at + n, old.len - at - n);
    if (out->len > MOST_BYTES)
        out->len = MOST_BYTES;
    str_clear(&old);
}

static void mutate(const struct input *in, size_t n, uint64_t seconds, uint64_t most,
                   uint64_t seed)
{
    struct rng r;
    double end = (double)clock() + (double)seconds * CLOCKS_PER_SEC;
    uint64_t runs = 0;

    for (; runs < most && (double)clock() < end; runs++) {
        const struct input *from = &in[rng_init(&r, seed, runs), rng_below(&r, n)];
        struct str s = { 0 };
        uint64_t changes = rng_below(&r, MOST_CHANGES) + 1;

        str_addn(&s, from->bytes, from->n);
        while (changes--)
            change(&r, &s, &in[rng_below(&r, n)]);
        run((struct input){ s.s ? s.s : (char *)"", s.len });
        str_clear(&s);
    }
    printf("# %llu changed inputs\n", (unsigned long long)runs);
}

int main(int argc, char **argv)
{
    struct input *in = xcalloc((size_t)argc, sizeof(*in));
    struct err err = { 0 };
    uint64_t seconds = 0, runs = UINT64_MAX, seed = 0;
    size_t n = 0;
    int first = 1;

    target = fs_basename(argv[0]);
    signal(SIGSEGV, on_crash);
    signal(SIGABRT, on_crash);
    for (; first + 1 < argc; first += 2) {
        uint64_t *to = !strcmp(argv[first], "--seconds") ? &seconds
                       : !strcmp(argv[first], "--runs")  ? &runs
                       : !strcmp(argv[first], "--seed")  ? &seed
                                                         : NULL;

        if (!to || !str_u64(argv[first + 1], to))
            break;
    }
    for (int i = first; i < argc; i++) {
        if (fs_read_file(&in[n].bytes, &in[n].n, argv[i], 1 << 26, &err) < 0) {
            printf("Bail out! %s\n", err.text);
            return 1;
        }
        run(in[n++]);
        tap_ok(true, "%s: %s is read without a crash", target, fs_basename(argv[i]));
    }
    if (seconds && n)
        mutate(in, n, seconds, runs, seed ? seed : (uint64_t)getpid());
    for (size_t i = 0; i < n; i++)
        free(in[i].bytes);
    free(in);
    return tap_done();
}

#endif
