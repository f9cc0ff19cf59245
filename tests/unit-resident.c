/* unit-resident - mapped weights are copied between steps, and stay what they are */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/base/mem.h"
#include "lib/device/device.h"
#include "lib/run/resident.h"
#include "tests/tap.h"

enum { PARTS = 3, BYTES = 3 << 20, SLICE = BYTES / 2, SMALL = 4096 };

int main(void)
{
    const uint64_t many = UINT64_C(1) << 50;
    struct resident r = { 0 }, two = { 0 };
    struct matrix matrix[PARTS + 2] = { 0 };
    const void *mapped[PARTS + 2];
    struct err err = { 0 };
    struct device *device;
    const size_t bytes = (size_t)PARTS * BYTES;
    char *content = mem_alloc(bytes, "a file", &err), *file;
    FILE *f = tmpfile();
    size_t steps, moved = 0;
    bool same = true;

    if (!content || !f || backend_cpu.open(&device, 2, 0, &err) < 0)
        return 1;
    for (size_t i = 0; i < bytes; i++)
        content[i] = (char)(i * 2654435761u >> 24);
    if (fwrite(content, 1, bytes, f) != bytes || fflush(f))
        return 1;
    file = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fileno(f), 0);
    if (file == MAP_FAILED)
        return 1;
    for (size_t i = 0; i < PARTS; i++)
        matrix[i].data = file + i * BYTES;
    matrix[PARTS].data = file + SLICE;     /* in part 0 */
    matrix[PARTS + 1].data = file + BYTES; /* part 1, tied */
    for (size_t i = 0; i < PARTS + 2; i++)
        mapped[i] = matrix[i].data;

    for (size_t i = 0; i < PARTS; i++)
        resident_add(&r, file + i * BYTES, BYTES);
    resident_add(&r, file + BYTES, BYTES);
    resident_add(&r, file, SMALL);
    tap_ok(r.n == PARTS, "tied weights are one, small ones stay");

    resident_add(&two, file, 2 * BYTES);
    resident_add(&two, file + 2 * BYTES, BYTES);
    resident_plan(&two, &backend_cpu, device, many, 1);
    tap_ok(two.part[0].bytes == BYTES && two.part[1].bytes == 2 * BYTES,
           "the smallest is the first, which tells what copies cost");
    resident_clear(&two);

    resident_plan(&r, &backend_cpu, device, 1, 1);
    tap_ok(r.each == 0, "no copy is made for a few steps");
    resident_plan(&r, &backend_cpu, device, many, 1 << 30);
    tap_ok(r.each == 0, "none without memory for all ranks of the machine");
    resident_plan(&r, &backend_cpu, device, many, 1);
    if (!r.each) {
        tap_skip("copies", "no huge pages, or no memory");
        goto out;
    }
    resident_step(&r, matrix, PARTS + 2);
    tap_ok(!r.copied, "no copy is made after the first step");
    for (steps = 1; r.next < r.n && r.each && steps < 100; steps++)
        resident_step(&r, matrix, PARTS + 2);
    for (size_t i = 0; i < PARTS + 2; i++) {
        size_t n = i == PARTS ? SLICE : BYTES;

        moved += matrix[i].data != mapped[i];
        same = same &&
               !memcmp(matrix[i].data, content + ((const char *)mapped[i] - file), n);
    }
    tap_ok(moved == PARTS + 2, "then every weight is, and its slices");
    tap_ok(same && r.copied == bytes, "once, byte for byte");
out:
    resident_clear(&r);
    backend_cpu.close(device);
    munmap(file, bytes);
    fclose(f);
    free(content);
    return tap_done();
}
