/* At which priority a stream is made: production's in the upper half of what the device has, opportunistic ones in the
 * lower, where the agent wants that (ALIQUOT_ACT_STREAM_PRIORITY). Decides and remembers; makes no stream.
 *
 * The program reads back what it asked for: frameworks choose streams by it, and compare. Not covered are priorities of
 * graph nodes, of single launches and of cuStreamSetAttribute: a program that sets those has set them.
 */
#ifndef ALIQUOT_STREAM_PRIORITY_H
#define ALIQUOT_STREAM_PRIORITY_H

#include "interpose/driver.h"

#include <stdbool.h>

struct priority_range {
    int least, greatest; /* as the driver says it: the greatest is the smaller number */
};

struct priority_wish {
    int asked;
    bool is_explicit; /* false: the program left it to the driver */
};

/* Pure: what a stream of that class gets. Where there are no two halves, what was asked. */
int priority_bounded(bool is_production, struct priority_wish wish, struct priority_range range);

/* False: nothing is to be changed, for the agent does not want it, there is no context, or as many streams are changed
 * already as can be remembered. True: the wish is within what
 * the device has, as the driver would have made it. */
bool stream_priority_choose(struct priority_wish *wish, int *given);

/* Streams whose priority is not the one that was asked for, each in the context that was current. */
void stream_priority_remember(CUstream stream, struct priority_wish wish, int given);

struct priority_memory {
    CUcontext context;
    int asked, given;
    bool is_one;
};

/* Before the stream is ended; what was known of it, for stream_priority_restore where that fails. */
struct priority_memory stream_priority_forget(CUstream stream);
void stream_priority_restore(CUstream stream, const struct priority_memory *memory);

/* The context ended, and its streams with it. */
void stream_priority_forget_context(CUcontext context);
int stream_priority_shown(CUstream stream, int given);

/* In the child of a fork, in the fork handler, and at its own cuInit. */
void stream_priority_reset(void);

#endif
