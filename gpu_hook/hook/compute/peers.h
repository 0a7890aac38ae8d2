/* The boards of production processes on this process's devices, which it only reads. Each stands at an address that
 * never changes, over private pages of zeroes (idle since ever) where there is none, so that a look needs no lock. The
 * agent says who is a neighbour; what a board says is believed for as long as the agent leaves it here.
 */
#ifndef ALIQUOT_PEERS_H
#define ALIQUOT_PEERS_H

#include "compute/pace_rule.h"

#include "aliquot_protocol.h"

/* On the session's thread. Maps a neighbour's board, in place of what that number was before. Returns 0 or an errno;
 * closes nothing. */
int neighbours_add(const struct aliquot_board_notice *notice, int descriptor);

/* On the session's thread. */
void neighbours_remove(uint32_t number);

/* On the session's thread, and in a fork handler: there are none. */
void neighbours_forget(void);

/* Fills has_neighbours, are_active and idle_since for a device of the agent's page, from any thread. */
void neighbours_look(int page_device, struct pace_state *state);

#endif
