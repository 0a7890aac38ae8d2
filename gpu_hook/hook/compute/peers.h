/* The activity pages of production processes on this process's devices, which it only reads. Each
 * is mapped at an address that never changes, over private pages of zeroes (idle) where there is
 * none, so that a reader needs no lock. The agent decides which processes are peers; the hook
 * believes a page for as long as the agent leaves it here. */
#ifndef ALIQUOT_PEERS_H
#define ALIQUOT_PEERS_H

#include "compute/pace_rule.h"

#include "aliquot_protocol.h"

/* Map a peer's activity page, in place of what that number was before. Called on the session's
 * thread. Returns 0 or an errno; closes nothing. */
int peers_add(const struct aliquot_activity_page_notice *notice, int descriptor);

/* On the session's thread. */
void peers_remove(uint32_t number);

/* Forget all peers. Called on the session's thread, and in a fork handler. */
void peers_forget(void);

/* Fill has_peers, are_active and idle_since for a device of the agent's page. Called by any
 * thread. */
void peers_read(int page_device, struct pace_state *state);

#endif
