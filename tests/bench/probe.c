/* probe - what this machine can do at this moment: probe THREADS [SECONDS]
 *
 * Prints four rates a second, each the best of several runs: bytes read from memory,
 * and operations of products of f32, bf16 and int8 matrices (0: no such product); and
 * the kernels that products with f32 weights use, and with --compute bf16.  With
 * SECONDS it prints the mean rate of reading over this time instead. */
#include <stdio.h>
#include <stdlib.h>

#include "lib/cpu/machine.h"

int main(int argc, char **argv)
{
    int threads = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1;
    struct err err = { 0 };
    struct device_rates r;

    if ((argc > 2 ? machine_read(threads, strtod(argv[2], NULL), &r.read, &err)
                  : machine_measure(threads, &r, &err)) < 0) {
        fprintf(stderr, "probe: %s\n", err.text);
        return 4;
    }
    if (argc > 2) {
        printf("%.0f\n", r.read);
        return 0;
    }
    printf("%.0f %.0f %.0f %.0f %s %s\n", r.read, r.f32, r.bf16, r.int8,
           machine_kernels(false, DTYPE_F32), machine_kernels(true, DTYPE_BF16));
    return 0;
}
