/* probe - what this machine can do at this moment: probe THREADS
 *
 * Prints two rates: bytes read from memory, and f32 operations of a matrix product,
 * each a second, the best of several runs. */
#include <stdio.h>
#include <stdlib.h>

#include "lib/cpu/machine.h"

int main(int argc, char **argv)
{
    int threads = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1;
    struct err err = { 0 };
    double reading, product;

    if (machine_measure(threads, &reading, &product, &err) < 0) {
        fprintf(stderr, "probe: %s\n", err.text);
        return 4;
    }
    printf("%.0f %.0f\n", reading, product);
    return 0;
}
