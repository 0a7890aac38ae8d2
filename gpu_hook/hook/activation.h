/* Whether the hook acts in this process and this call: it starts after the real cuInit succeeded, sleeps in the
 * child of a fork until that child's own cuInit, and lets calls through that the driver makes to itself. */
#ifndef ALIQUOT_ACTIVATION_H
#define ALIQUOT_ACTIVATION_H

#include <stdbool.h>

/* Called after the real cuInit succeeded. */
void activation_begin(void);

/* The hook's threads leave the driver alone before what runs at the exit and is registered by now, the driver's own end
 * included. Again where a driver may have registered more meanwhile. */
void activation_watch_exit(void);

/* True: the hook acts, and activation_leave is due. False: forward, and change nothing. */
bool activation_enter(void);
void activation_leave(void);

#endif
