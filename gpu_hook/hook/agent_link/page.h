/* The two shared pages: the agent's, mapped read-only, and the hook's own. Their addresses never
 * change, so readers need no lock: before the agent is known, and after a fork, private pages of
 * zeroes are there. These are the library's own data: a program's start maps none. */
#ifndef ALIQUOT_PAGE_H
#define ALIQUOT_PAGE_H

#include "aliquot_protocol.h"

#include <stdbool.h>
#include <stdint.h>

/* Map the agent's pages over the private ones. Returns 0 or an errno; closes nothing. */
int page_install(int agent_descriptor, int hook_descriptor);

/* Check that a shared page may be mapped from the descriptor: it must be large enough, and its size
 * sealed, because a file that shrinks would turn a read into SIGBUS in the user's kernel. Returns 0
 * or an errno. */
int page_check_descriptor(int descriptor, size_t bytes);

/* Return what to map for so many bytes: whole pages of the machine. */
size_t page_mapped_bytes(size_t bytes);

/* Return where the private activity page is, of page_mapped_bytes(ALIQUOT_ACTIVITY_PAGE_BYTES).
 * activity_page.c owns what is there. */
void *page_of_activity(void);

/* Return a word that from now on is 0 again in the child of every fork, however the child was made,
 * and that no other module here writes. NULL: a kernel before 4.14. */
uint32_t *page_wiped_word(void);

/* Put private pages back. Safe in a fork handler. */
void page_forget(void);

const struct aliquot_agent_page *page_agent(void);
struct aliquot_hook_page *page_hook(void);

/* Return the index of the device in the agent's page; -1: not granted. */
int page_device_index(const uint8_t uuid[16]);

/* Read the device at an index of the agent's page. False: there is none, and uuid stays. */
bool page_device_uuid(int index, uint8_t uuid[16]);

static inline uint64_t page_read(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void page_write(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* Add to a counter that several threads raise and that need not be exact before the next
 * message. */
static inline void page_add(uint64_t *word, uint64_t value)
{
    __atomic_fetch_add(word, value, __ATOMIC_RELEASE);
}

#endif
