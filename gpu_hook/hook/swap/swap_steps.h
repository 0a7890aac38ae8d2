/* The steps of a swap, in their order; each is another module's. What they do not finish, they undo, and say why. */
#ifndef ALIQUOT_SWAP_STEPS_H
#define ALIQUOT_SWAP_STEPS_H

#include "aliquot_protocol.h"

#include <stdbool.h>

/* The outcome and its text, if it did not succeed. */
void swap_answer(struct aliquot_moved *answer, enum aliquot_move_outcome outcome, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* On the mover's thread, between residency_begin_move and residency_end_move. True: all is where it
 * should be; false: it is where it was. *bytes: how many were copied. */
bool swap_out_steps(struct aliquot_moved *answer, const struct aliquot_swap *order, uint64_t *bytes);
bool swap_in_steps(struct aliquot_moved *answer, uint64_t *bytes);

#endif
