/* codes8 - states of an optimizer in codes of 8 bits
 *
 * A block of numbers (optimizers.h) has a scale, its largest magnitude, and for each
 * number the nearest of 256 parts of that: the dynamic map of Dettmers et al. 2022
 * ("8-bit Optimizers via Block-wise Quantization", section 2), as bitsandbytes and
 * torchao have it.  Numbers that are read and written again stay as they are: so
 * checkpoints have numbers, and a run that goes on with the same blocks has the bits of
 * one that did not stop.  A layout that divides a block has other codes. */
#ifndef LIB_TRAIN_CODES8_H
#define LIB_TRAIN_CODES8_H

#include "lib/device/optimizers.h"

enum { CODES8 = 256 };

/* The parts that codes stand for, in order; of SLOT_SQUARES none is negative. */
void codes8_map(float map[CODES8], enum slot_form form);
/* N numbers at X, a block, from codes, and back. */
void codes8_decode(float *x, const uint8_t *code, float scale, uint64_t n,
                   const float map[CODES8]);
float codes8_encode(uint8_t *code, const float *x, uint64_t n, const float map[CODES8]);
/* The same of numbers that codes stood for: it has that scale, and those codes. */
float codes8_encode_again(uint8_t *code, const float *x, uint64_t n,
                          const float map[CODES8]);

/* A slot of weight I of P: scales of the blocks of each row, then codes. */
struct codes8 {
    float *scale;   /* [rows][blocks] */
    uint8_t *code;  /* [rows][cols] */
    uint64_t *ends; /* [blocks] */
    uint64_t blocks, rows, cols;
};
struct codes8 codes8_open(void *slot, const struct program *p, int i);
void codes8_close(struct codes8 *c);
/* Copies N numbers from AT to TO. */
void codes8_read(const void *slot, const struct program *p, int i, enum slot_form form,
                 uint64_t at, float *to, uint64_t n);
/* Sets all numbers to those at FROM. */
void codes8_write(void *slot, const struct program *p, int i, enum slot_form form,
                  const float *from);

#endif
