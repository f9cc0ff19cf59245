/* fuzz-json - the strict JSON reader: what it takes, printed, reads again as the same,
 * also where the memory of another document is used again */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str once = { 0 }, twice = { 0 };
    struct json_doc doc, again = { 0 };
    struct err err = { 0 };

    if (json_parse(&doc, "fuzz", (const char *)data, size, &err) < 0) {
        assert(json_reparse(&again, "fuzz", 1, (const char *)data, size, &err) < 0);
        assert(!again.root);
        json_clear(&again);
        return 0;
    }
    json_print(&once, doc.root);
    assert(json_reparse(&again, "fuzz", 1, (const char *)data, size, &err) == 0);
    assert(json_reparse(&again, "printed", 1, str_text(&once), once.len, &err) == 0);
    json_print(&twice, again.root);
    assert(!strcmp(str_text(&once), str_text(&twice)));
    json_clear(&doc);
    json_clear(&again);
    str_clear(&once);
    str_clear(&twice);
    return 0;
}
