/* fuzz-said - what a model says: the first byte says in which form, the second how many
 * bytes come at a time.  However the text comes, the parts are the same. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/serve/said.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void take_apart(struct str *out, const struct said_form *form, const char *text,
                       size_t n, size_t step)
{
    struct str calls = { 0 }, thought = { 0 };
    struct said s;

    said_init(&s, form);
    for (size_t at = 0; at <= n; at += step) {
        const size_t some = n - at < step ? n - at : step;

        said_read(&s, text + at, some, at + step > n);
        str_addn(out, str_text(&s.answer), s.answer.len);
        str_addn(&thought, str_text(&s.thought), s.thought.len);
        for (size_t i = 0; i < s.ncalls; i++) {
            struct json_doc doc;
            struct err err = { 0 };

            assert(*s.call[i].name);
            assert(json_parse(&doc, "call", s.call[i].arguments,
                              strlen(s.call[i].arguments), &err) == 0);
            assert(doc.root->type == JSON_OBJECT);
            json_clear(&doc);
            str_addf(&calls, "%s(%s)", s.call[i].name, s.call[i].arguments);
        }
    }
    str_addf(out, "\n%zu\n%s", thought.len, str_text(&calls));
    str_addn(out, str_text(&thought), thought.len);
    str_clear(&calls);
    str_clear(&thought);
    said_clear(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct said_form form = { 0 };
    struct str whole = { 0 }, parts = { 0 };

    if (size < 2)
        return 0;
    form.calls = (enum said_calls)(data[0] % 4);
    form.thoughts = data[0] >> 2 & 1;
    form.in_thoughts = form.thoughts && data[0] >> 3 & 1;
    form.one = data[0] >> 4 & 1;
    take_apart(&whole, &form, (const char *)data + 2, size - 2, size);
    take_apart(&parts, &form, (const char *)data + 2, size - 2, 1 + data[1] % 16);
    assert(whole.len == parts.len && !memcmp(whole.s, parts.s, whole.len));
    str_clear(&whole);
    str_clear(&parts);
    return 0;
}
