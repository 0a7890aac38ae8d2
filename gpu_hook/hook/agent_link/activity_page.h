/* This process's own activity page, where it shows its work on each device to the agent and, in
 * production, to opportunistic peers. Its address never changes: private pages are there until the
 * agent sends one, and after a fork. This module writes what callers report. Devices are indices of
 * the agent's page; others are ignored. Any thread may call. */
#ifndef ALIQUOT_ACTIVITY_PAGE_H
#define ALIQUOT_ACTIVITY_PAGE_H

#include <stdbool.h>
#include <stdint.h>

/* a shorter pause between two intervals makes one of them */
#define MERGED_NANOSECONDS 20000ull

/* Map the page that the agent sent, with all that this process showed so far. Returns 0 or an
 * errno; closes nothing. */
int activity_page_install(int descriptor);

/* Put private pages back. Safe in a fork handler. */
void activity_page_forget(void);

/* True: a batch begins. Every process sees it before any later call of this thread reaches the
 * driver. False: all batches have ended. */
void activity_page_set_active(int page_device, bool is_active);

/* Add work from `start` to `end`, CLOCK_MONOTONIC. Intervals come in the order of their ends; the
 * part before the newest one's start is lost. An empty interval is ignored. */
void activity_page_add_interval(int page_device, uint64_t start, uint64_t end);

#endif
