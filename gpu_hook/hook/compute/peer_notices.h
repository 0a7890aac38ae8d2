/* What the agent says about boards: this process's own, and those of its neighbours. */
#ifndef ALIQUOT_PEER_NOTICES_H
#define ALIQUOT_PEER_NOTICES_H

#include "aliquot_protocol.h"

/* On the session's thread, as the session's owner. The descriptor is -1 where none came, and stays the caller's. */
void board_notices_handle(const struct aliquot_board_notice *notice, int descriptor);

/* A connection stands: what an earlier agent said of neighbours counts no longer. Not before, for while the agent is
 * away their boards still tell opportunistic work the truth. */
void board_notices_registered(void);

#endif
