#include "base/version.h"

#include "aliquot_protocol.h"

unsigned aliquot_hook_version(void)
{
    return ALIQUOT_PROTOCOL_VERSION;
}
