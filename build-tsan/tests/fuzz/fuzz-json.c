/* fuzz-json - the strict JSON reader: what it takes, printed, reads again as the same;
 * and what the reader in place takes it takes as well, and reads the same */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/base/jsonplain.h"
#include "lib/base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* DOC is what json_parse made of the bytes, or NULL. */
static void compare_plain(const uint8_t *data, size_t size, const struct json_doc *doc)
{
    struct json nodes[40];
    char *text = xmalloc(size + 1);
    struct str ours = { 0 }, theirs = { 0 };

    memcpy(text, data, size);
    if (jsonplain_parse(nodes, 40, text, size)) {
        assert(doc);
        json_print(&ours, nodes);
        json_print(&theirs, doc->root);
        assert(!strcmp(str_text(&ours), str_text(&theirs)));
    }
    str_clear(&ours);
    str_clear(&theirs);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str once = { 0 }, twice = { 0 };
    struct json_doc doc, again;
    struct err err = { 0 };

    if (json_parse(&doc, "fuzz", (const char *)data, size, &err) < 0) {
        compare_plain(data, size, NULL);
        return 0;
    }
    compare_plain(data, size, &doc);
    json_print(&once, doc.root);
    assert(json_parse(&again, "printed", str_text(&once), once.len, &err) == 0);
    json_print(&twice, again.root);
    assert(!strcmp(str_text(&once), str_text(&twice)));
    json_clear(&doc);
    json_clear(&again);
    str_clear(&once);
    str_clear(&twice);
    return 0;
}
