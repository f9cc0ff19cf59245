/* fuzz-database - studies in an SQLite file whose bytes were changed
 *
 * An input is the file itself where it begins as one.  Any other is a list of changes
 * to the file of a small study with pages of 512 bytes: three bytes say where
 * (little-endian; reduced by the file's length), one how many bytes follow, and these
 * are put there.  A length of 0 ends the file at that place. */
#include "config.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#ifndef HAVE_SQLITE3
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)data, (void)size;
    return 0;
}
#else
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/base/str.h"
#include "tests/fuzz/smallstudy.h"

static volatile int failures; /* as many as there are: any answer will do */

/* The study's file in DIR, made once. */
static const char *whole_study(const char *dir, size_t *n)
{
    static char *bytes;
    static size_t length;
    char *path = fs_join_dup(dir, "made.db"), *url = str_dupf("sqlite:///%s", path);
    struct err err = { 0 };
    struct storage *st;
    sqlite3 *db;

    if (!bytes && storage_open(&st, url, true, NULL, &err) == 0) {
        storage_close(st);
        if (sqlite3_open(path, &db) != SQLITE_OK ||
            sqlite3_exec(db, study, NULL, NULL, NULL) != SQLITE_OK ||
            sqlite3_exec(db,
                         "PRAGMA journal_mode = DELETE; PRAGMA page_size = 512; VACUUM",
                         NULL, NULL, NULL) != SQLITE_OK)
            abort();
        sqlite3_close(db);
        if (fs_read_file(&bytes, &length, path, UINT32_MAX, &err) < 0)
            abort();
    }
    free(path);
    free(url);
    *n = length;
    return bytes;
}

static void change(struct str *file, const uint8_t *data, size_t size)
{
    while (size >= 4 && file->len) {
        size_t at =
            (data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16) % file->len;
        size_t n = data[3] < size - 4 ? data[3] : size - 4;

        if (!data[3])
            file->len = at;
        n = n < file->len - at ? n : file->len - at;
        memcpy(file->s + at, data + 4, n);
        data += 4 + n;
        size -= 4 + n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char magic[] = "SQLite format 3";
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    char *dir = str_dupf("%s/fuzz-database.XXXXXX", base);
    struct str file = { 0 };

    if (mkdtemp(dir)) {
        char *path = fs_join_dup(dir, "s.db"), *url = str_dupf("sqlite:///%s", path);
        size_t n;
        const char *made = whole_study(dir, &n);

        if (size >= sizeof(magic) && !memcmp(data, magic, sizeof(magic))) {
            str_addn(&file, (const char *)data, size);
        } else {
            str_addn(&file, made, n);
            change(&file, data, size);
        }
        if (output_write(path, str_text(&file), file.len, false, NULL) == 0)
            load_all(url);
        failures += fs_remove_tree(dir, NULL) < 0;
        free(path);
        free(url);
    }
    str_clear(&file);
    free(dir);
    return 0;
}
#endif
