/* The kernel of five_dimensions.ladle, where each element of x has to be found:
 * as all values are 3, answers are 3 before the first fold, and 3 times the
 * sums of x after it. */
#include "five_dimensions.h"
#include <stdio.h>

enum { HEADS = 4, SUMMED = 2 * 3 * 5, SIZE = 16 };
static uint16_t q[HEADS * SIZE], k[2 * SIZE], v[2 * SIZE];
static float x[HEADS * SUMMED * SIZE], o[HEADS * SIZE];
static char memory[FIVE_DIMENSIONS_BYTES];

int main(void) {
  five_dimensions sequence;
  five_dimensions_arguments arguments = {q, k, v, x, o};
  int i, j, t, wrong = 0;
  five_dimensions_init(&sequence, memory);
  for (i = 0; i < 2 * SIZE; ++i)
    v[i] = 0x4200; /* 3 in f16 */
  for (i = 0; i < HEADS * SUMMED * SIZE; ++i)
    x[i] = (float)(i * 37 % 101) / 1000;
  for (t = 0; t < 60; ++t) {
    five_dimensions_step(&sequence, &arguments);
    for (i = 0; i < HEADS * SIZE; ++i) {
      float wanted = 3, error;
      if (sequence.segments)
        for (wanted = 0, j = 0; j < SUMMED; ++j)
          wanted += 3 * x[(i / SIZE * SUMMED + j) * SIZE + i % SIZE];
      error = o[i] - wanted;
      wrong += !(error < 1e-3f && error > -1e-3f);
    }
  }
  printf("%d folded, %d wrong\n", (int)sequence.segments, wrong);
  return wrong != 0;
}
