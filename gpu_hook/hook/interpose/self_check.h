/* Checks that interception holds in this environment: which libraries a program gets by which
 * name. Calls neither cuInit nor nvmlInit, and leaves the libraries open, so it belongs in a
 * process of its own. */
#ifndef ALIQUOT_SELF_CHECK_H
#define ALIQUOT_SELF_CHECK_H

#include "aliquot_protocol.h"

#include <stdbool.h>

struct self_check {
    uint32_t passed; /* bits of enum aliquot_self_check */
    char text[ALIQUOT_TEXT_BYTES]; /* the finding for each failed check */
};

void self_check_run(struct self_check *check);

/* Run the check in a child, so that a library that crashes or hangs at loading does not take the
 * kernel with it. */
void self_check_run_apart(struct self_check *check, int timeout_milliseconds);

#endif
