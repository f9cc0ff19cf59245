/* fuzz-json - the strict JSON reader: what it takes, printed, reads again as the
 * same */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "lib/base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str once = { 0 }, twice = { 0 };
    struct json_doc doc, again;
    struct err err = { 0 };

    if (json_parse(&doc, "fuzz", (const char *)data, size, &err) < 0)
        return 0;
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
