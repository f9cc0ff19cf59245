/* fragments - registers of a warp, in device memory (fragments.cu) */
#ifndef TESTS_EMU_FRAGMENTS_H
#define TESTS_EMU_FRAGMENTS_H

#include <stdint.h>

struct fragments {
    const uint32_t *a, *b;
    float *d, *twin;
    const uint16_t *matrices;
    uint32_t *plain, *transposed;
};

#ifdef __cplusplus
extern "C" {
#endif
void fragments_launch(struct fragments f, void *stream);
#ifdef __cplusplus
}
#endif
#endif
