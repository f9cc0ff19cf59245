/* fuzz-chats - a file of chats, and a conversation that is loaded, changed and saved */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/tp-run/chatfile.h"
#include "cmd/tp-run/conversation.h"
#include "lib/base/fs.h"
#include "lib/base/output.h"

static volatile int failures; /* as many as there are: any answer will do */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int each(void *arg, const struct chatfile_chat *chat, struct err *err)
{
    struct messages m;
    int *n = arg;

    (void)err;
    *n += chat->chat && messages_parse(&m, chat->doc, chat->chat, NULL) == 0;
    return 0;
}

static void change(struct conversation *c, const char *path)
{
    struct conversation again = { 0 };
    struct str system = { 0 };

    if (conversation_system(c, &system))
        conversation_set_system(c, NULL);
    conversation_set_system(c, "Be brief.");
    if (!conversation_waits(c))
        conversation_add(c, "user", "x", 1);
    failures += conversation_save(c, path, NULL) < 0;
    /* what is saved can be loaded, unless it is nested as deep as may be */
    if (conversation_load(&again, path, NULL) == 0 &&
        (again.n != c->n || !again.system))
        abort();
    conversation_reset(&again);
    conversation_clear(&again);
    str_clear(&system);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    char *dir = str_dupf("%s/fuzz-chats.XXXXXX", base), *path;
    struct conversation c = { 0 };
    struct err err = { 0 };
    int n = 0;

    if (mkdtemp(dir)) {
        path = fs_join_dup(dir, "chats");
        if (output_write(path, data, size, false, &err) == 0 &&
            chatfile_read(path, each, &n, &err) == 0 &&
            conversation_load(&c, path, &err) == 0)
            change(&c, path);
        failures += fs_remove_tree(dir, NULL) < 0;
        free(path);
    }
    conversation_clear(&c);
    free(dir);
    return 0;
}
