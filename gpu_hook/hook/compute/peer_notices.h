/* Notices of the agent about activity pages: this process's own, and those of its peers. */
#ifndef ALIQUOT_PEER_NOTICES_H
#define ALIQUOT_PEER_NOTICES_H

#include "aliquot_protocol.h"

/* Called on the session's thread. The descriptor is -1 where none came, and stays the caller's. */
void peer_notices_handle(const struct aliquot_activity_page_notice *notice, int descriptor);

/* Forget an earlier agent's notices about peers when a connection stands. Until then
 * opportunistic work can trust the peers' activity pages. */
void peer_notices_registered(void);

#endif
