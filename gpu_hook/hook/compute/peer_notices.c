#include "compute/peer_notices.h"

#include "agent_link/activity_page.h"
#include "base/log.h"
#include "compute/peers.h"

#include <errno.h>
#include <string.h>

/* Returns 0 or an errno. */
static int handle(const struct aliquot_activity_page_notice *notice, int descriptor)
{
    if (notice->kind == ALIQUOT_ACTIVITY_PAGE_GONE && notice->number < ALIQUOT_MAX_PEERS &&
        descriptor < 0) {
        peers_remove(notice->number);
        return 0;
    }
    if (descriptor < 0)
        return EBADF;
    if (notice->kind == ALIQUOT_ACTIVITY_PAGE_OWN)
        return activity_page_install(descriptor);
    return notice->kind == ALIQUOT_ACTIVITY_PAGE_PEER ? peers_add(notice, descriptor) : EINVAL;
}

void peer_notices_handle(const struct aliquot_activity_page_notice *notice, int descriptor)
{
    int failure = handle(notice, descriptor);
    if (failure)
        LOG("event=activity_page_refused kind=%u number=%u reason=\"%s\"", notice->kind,
            notice->number, strerror(failure));
}

void peer_notices_registered(void)
{
    peers_forget();
}
