/* Notices of the agent about activity pages: this process's own, and those of its peers. */
#ifndef ALIQUOT_PEER_NOTICES_H
#define ALIQUOT_PEER_NOTICES_H

#include "aliquot_protocol.h"

/* Called on the session's thread. The descriptor is -1 where none came, and stays the caller's. */
void peer_notices_handle(const struct aliquot_board_notice *notice, int descriptor);

/* Forget what an earlier agent said of peers, when a connection stands. Until then their activity
 * pages still show opportunistic work the truth. */
void peer_notices_registered(void);

#endif
