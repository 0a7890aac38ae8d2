#include "accounting/shortfall.h"

#include "agent_link/page.h"

#include <time.h>

static uint64_t coarse_nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The last try counts, whatever came before it: by then the cache is empty. The charges of other
 * processes are sampled. */
void shortfall_refused(struct shortfall *shortfall, int page_index, uint64_t charged,
                       uint64_t asked)
{
    if (page_index < 0 || asked > INT64_MAX)
        return;
    const struct aliquot_agent_device *words = &page_agent()->devices[page_index];
    uint64_t needed = page_read(&words->charged_elsewhere_bytes) + charged + asked;
    if (needed <= page_read(&words->quota_bytes))
        return;
    shortfall->asked = asked;
    shortfall->needed = needed;
    shortfall->at_nanoseconds = coarse_nanoseconds();
    shortfall_publish(shortfall, page_index);
}

void shortfall_decide(struct shortfall *shortfall, int page_index, uint64_t charged)
{
    if (charged < shortfall->asked - shortfall->asked / 2) {
        shortfall->stood_at_nanoseconds = shortfall->at_nanoseconds;
        if (shortfall->most < shortfall->needed)
            shortfall->most = shortfall->needed;
    }
    shortfall->at_nanoseconds = shortfall->stood_at_nanoseconds;
    shortfall->asked = shortfall->needed = 0;
    shortfall_publish(shortfall, page_index);
}

void shortfall_publish(const struct shortfall *shortfall, int page_index)
{
    struct aliquot_hook_page *page = page_hook();
    if (page_index < 0 || !page)
        return;
    struct aliquot_hook_need *words = &page->needs[page_index];
    page_write(&words->refused_at_nanoseconds, shortfall->at_nanoseconds);
    page_write(&words->refused_needed_bytes, shortfall->needed);
    page_write(&words->needed_bytes, shortfall->most);
}
