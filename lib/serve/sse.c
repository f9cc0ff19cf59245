/* sse - server-sent events, of one data field each */
#include "lib/serve/sse.h"

#include <assert.h>
#include <string.h>

void sse_add(struct str *out, const char *data)
{
    assert(!strpbrk(data, "\r\n"));
    str_add(out, "data: ");
    str_add(out, data);
    str_add(out, "\n\n");
}

void sse_end(struct str *out)
{
    sse_add(out, "[DONE]");
}
