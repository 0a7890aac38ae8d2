/* Decides whether the hook acts in this process and this call. It acts in the process whose
 * cuInit succeeded, not in the child of a fork until that child's own cuInit. It passes calls
 * that the driver makes to itself. */
#ifndef ALIQUOT_GUARD_H
#define ALIQUOT_GUARD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* True: the hook acts, and the caller must call guard_leave. False: the caller forwards the
 * call, and changes nothing. */
bool guard_enter(void);
void guard_leave(void);

/* Return whether this is the process that the hook started in. */
bool guard_is_ours(void);

/* Return the process that the hook started in; 0: none yet. */
pid_t guard_owner(void);

/* Start the hook in this process. The caller holds the mutex of startup.c. */
void guard_set_owner(pid_t self);

/* Called by the session's thread, whose start is no part of the program's. `wiped`: a word for this
 * module that the kernel sets to 0 in the child of a fork; NULL: there is none, and each question
 * asks for the process, as all do before this call. */
void guard_set_wiped(uint32_t *wiped);

#endif
