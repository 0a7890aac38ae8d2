/* The steps of a swap, in their order; each belongs to another module. Steps that do not complete
 * are undone, and the answer gives the reason. */
#ifndef ALIQUOT_SWAP_STEPS_H
#define ALIQUOT_SWAP_STEPS_H

#include "aliquot_protocol.h"

#include <stdbool.h>

/* Set the outcome, and the text of one that is no success. */
void swap_answer(struct aliquot_moved *answer, enum aliquot_move_outcome outcome,
                 const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Called on the mover's thread, between residency_begin_move and residency_end_move. True: all
 * memory is where it should be. False: it is where it was. */
bool swap_out_steps(struct aliquot_moved *answer, const struct aliquot_swap *order);
bool swap_in_steps(struct aliquot_moved *answer);

#endif
