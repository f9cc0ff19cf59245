/* devices - lists the devices that models can run on */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cmd.h"
#include "cmd/tp-run/commands.h"
#include "lib/base/json.h"
#include "lib/base/str.h"
#include "lib/device/device.h"

static void print_version(const char *what, int version)
{
    if (version)
        printf(", %s %d.%d", what, version / 1000, version % 1000 / 10);
}

static void print_peers(uint64_t peers)
{
    const char *before = ", reaches ";

    for (int i = 0; i < 64; i++)
        if (peers >> i & 1) {
            printf("%s%d", before, i);
            before = ",";
        }
}

static void print_text(const struct backend *b, const struct device_report *r)
{
    printf("%s: %d device%s", b->name, r->n, r->n == 1 ? "" : "s");
    if (r->trouble[0])
        printf(" (%s)", r->trouble);
    print_version("driver", r->driver);
    print_version("runtime", r->runtime);
    if (r->blas)
        printf(", cuBLASLt %d.%d.%d", r->blas / 10000, r->blas / 100 % 100,
               r->blas % 100);
    else if (r->runtime)
        printf(", no cuBLASLt");
    if (r->nccl)
        printf(", NCCL %d.%d.%d", r->nccl / 10000, r->nccl / 100 % 100, r->nccl % 100);
    else if (r->runtime)
        printf(", no NCCL");
    putchar('\n');
    for (int i = 0; i < r->n; i++) {
        const struct device_facts *f = &r->device[i];

        printf("%s %d: ", b->name, i);
        fputs(f->name, stdout);
        printf(", compute %d.%d, %d multiprocessors, %.1f GB (%.1f free), %s", f->major,
               f->minor, f->multiprocessors, (double)f->bytes / 1e9,
               (double)f->free_bytes / 1e9, f->bus);
        print_peers(f->peers);
        if (f->trouble[0])
            printf(": %s", f->trouble);
        putchar('\n');
    }
}

static void print_json(const struct backend *b, const struct device_report *r)
{
    struct str out = { 0 };

    str_addf(&out, "{\"type\":\"backend\",\"name\":\"%s\",\"devices\":%d", b->name,
             r->n);
    if (r->runtime)
        str_addf(&out, ",\"driver\":%d,\"runtime\":%d,\"cublaslt\":%d,\"nccl\":%d",
                 r->driver, r->runtime, r->blas, r->nccl);
    if (r->trouble[0]) {
        str_addf(&out, ",\"trouble\":");
        str_add_json(&out, r->trouble);
    }
    str_addf(&out, "}\n");
    for (int i = 0; i < r->n; i++) {
        const struct device_facts *f = &r->device[i];
        const char *before = "";

        str_addf(&out,
                 "{\"type\":\"device\",\"backend\":\"%s\",\"index\":%d,"
                 "\"name\":",
                 b->name, i);
        str_add_json(&out, f->name);
        str_addf(&out,
                 ",\"compute\":\"%d.%d\",\"multiprocessors\":%d,\"bytes\":%" PRIu64
                 ",\"free\":%" PRIu64 ",\"bus\":\"%s\",\"reaches\":[",
                 f->major, f->minor, f->multiprocessors, f->bytes, f->free_bytes,
                 f->bus);
        for (int k = 0; k < 64; k++)
            if (f->peers >> k & 1) {
                str_addf(&out, "%s%d", before, k);
                before = ",";
            }
        str_addf(&out, "]");
        if (f->trouble[0]) {
            str_addf(&out, ",\"trouble\":");
            str_add_json(&out, f->trouble);
        }
        str_addf(&out, "}\n");
    }
    fputs(str_text(&out), stdout);
    str_clear(&out);
}

int devices_main(const char *program, int argc, char **argv)
{
    static struct device_report r;
    bool json = false, cuda = false;
    const struct opt opts[] = {
        { OPT_FLAG, '\0', "json", &json, NULL, "print JSON, an object a line", NULL,
          NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = { .name = "devices",
                             .program = program,
                             .own_page = true,
                             .synopsis = "[OPTION]...",
                             .summary = "Print what a model can be run on here",
                             .opts = opts };

    cmd_parse(&cmd, argc, argv);
    for (size_t i = 0; backend_at(i); i++) {
        const struct backend *b = backend_at(i);

        cuda |= !strcmp(b->name, "cuda");
        if (!b->look) {
            long cores = sysconf(_SC_NPROCESSORS_ONLN);

            printf(json ? "{\"type\":\"backend\",\"name\":\"%s\",\"devices\":1,"
                          "\"cores\":%ld}\n"
                        : "%s: %ld cores\n",
                   b->name, cores);
            continue;
        }
        b->look(&r);
        (json ? print_json : print_text)(b, &r);
    }
    if (!cuda && !json)
        puts("cuda: not built in");
    return cmd_finish(&cmd, 0);
}
