/* This process's own board: where it shows its work on each device to the agent and, if it is production, to
 * opportunistic neighbours. Its address never changes: until the agent sends one, and after a fork, private pages stand
 * there. Keeps what it is told; what is work, and when it ended, others know. Devices are indices of the agent's page;
 * others are ignored. Any thread may call.
 */
#ifndef ALIQUOT_ACTIVITY_PAGE_H
#define ALIQUOT_ACTIVITY_PAGE_H

#include <stdbool.h>
#include <stdint.h>

#define BOARD_MERGED_NANOSECONDS 20000ull /* a shorter pause between two intervals makes one of them */

/* Makes the private pages; before any other function here, once. False: no memory. */
bool board_prepare(void);

/* Maps what the agent sent, with all that the board showed so far. Returns 0 or an errno; closes nothing. */
int board_install(int descriptor);

/* Puts private pages back. Safe in a fork handler. */
void board_forget(void);

/* True: a burst begins. Every process sees it before anything that this thread does after the return reaches the
 * driver. False: all have ended. */
void board_set_active(int page_device, bool is_active);

/* Work from `start` to `end`, CLOCK_MONOTONIC. Intervals come in the order of their ends; what lies before the newest
 * one's start is lost. An empty one is ignored. */
void board_add_interval(int page_device, uint64_t start, uint64_t end);

/* Work that no interval can show. */
void board_add_lost(int page_device, uint64_t nanoseconds);

#endif
