/* Carries out the agent's orders to swap out and in, on a thread of its own, one after the other.
 * The session goes on serving meanwhile. This module knows the order of the steps; each step
 * belongs to another module. */
#ifndef ALIQUOT_MOVES_H
#define ALIQUOT_MOVES_H

#include "aliquot_protocol.h"

/* Called by the session, on its thread. */
uint32_t moves_place(void); /* for HELLO: enum aliquot_residency */
void moves_segment(const struct aliquot_segment *segment, int descriptor);
void moves_ordered(const struct aliquot_swap *order); /* answered by MOVED, later */
void moves_registered(void);                          /* new pages, perhaps a new agent */
void moves_tick(void);

/* Called in the child of a fork, where no move is under way. */
void moves_reset(void);

#endif
